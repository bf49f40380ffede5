"""evidence.json: what a run's certificates show, with hashes that bind it to the run's files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from macer import __version__
from macer.certification.header import Header
from macer.certification.journal import Contents, read_journal
from macer.certification.scope import images_of
from macer.data.selection import Selection
from macer.data.split import ARRAYS
from macer.reporting.clauses import CLAUSES
from macer.reporting.logs import CertificateLog, describe_images, lacking, read_log
from macer.reporting.provenance import Provenance, provenance, versions_of
from macer.reporting.texts import inputs_text
from macer.reporting.verdict import class_verdicts, verdicts
from macer.runs.names import JOURNAL, MANIFEST, TABLE
from macer.system.errors import Mistake
from macer.system.files import check_ending, sha256_of_file, write_file

SCHEMA = 1

CLAIM = (
    "For each certified image, with probability 1 − α at least over the noise: the smoothed "
    "classifier, which answers with the class that the network chooses most often under Gaussian "
    "noise of standard deviation σ, gives the same answer for every image at an ℓ₂ distance below "
    "the certified radius. Distances are of {}."
)

LIMITS = (
    "Only changes whose ℓ₂ length is below the radius: no rotation, sticker, blur, compression or "
    "other camera whose change is longer, and no other norm.",
    "Only the smoothed classifier: the bare network, and the same network with other noise, fewer "
    "samples or other preprocessing, have no certificate.",
    "Only the population that the images are a random sample of: not other data, and nothing if "
    "the images were chosen by their results.",
    "Not every image: those that are wrong, abstained or certified at a smaller radius may change "
    "their answer.",
    "Not that an answer is right: a certificate says that it stays. The shares here count only "
    "images whose certified answer is their label.",
    "Nothing against an adversary who knows the seed and chooses the images to be certified: for "
    "those a seed must be secret.",
    "Nothing about poisoned training data, stolen models, or the software around the classifier.",
    "Not what was tried before: other models, settings and radii may have been certified and not "
    "shown.",
)


@dataclass(frozen=True)
class Source:
    """A run's certificates as its evidence needs them."""

    folder: Path
    log: CertificateLog  # of the images that count
    contents: Contents
    model: Provenance | None

    @property
    def header(self) -> Header:
        """That of the journal."""
        return self.contents.header


def source(folder: Path, log: CertificateLog) -> Source | None:
    """A run as evidence needs it; None where there is no journal."""
    journal = folder / JOURNAL
    if not journal.is_file():
        return None
    return Source(folder, log, read_journal(journal), provenance(folder, log.name))


def evidence(run: Source, images: Selection, radius: float | None = None) -> dict[str, Any]:
    """The document: figures, settings, hashes, commands and limits; docs/evidence.md has its keys.

    Args:
        images: of the run, that count.
        radius: of the verdict; σ by default.
    """
    if behind := lacking(run.folder, read_log(run.folder)):
        raise Mistake(
            f"the table of {run.folder} must have the certificates of its journal, got {behind} "
            "fewer; continue `macer certify`"
        )
    [verdict] = verdicts([run.log], radius)
    known = asdict(verdict)
    return {
        "schema": SCHEMA,
        "macer": __version__,
        "run": known.pop("name"),
        "claim": claim([run.log]),
        "verdict": known,
        "settings": settings(run.header),
        "images": _images(run, images),
        "classes": [asdict(each) for each in class_verdicts(run.log, verdict.radius)],
        "hashes": hashes(run),
        "versions": versions(run),
        "training": run.model and run.model.training(),
        "commands": commands(run, images, radius),
        "limits": list(LIMITS),
        "clauses": [asdict(clause) for clause in CLAUSES],
    }


def claim(logs: Sequence[CertificateLog]) -> str:
    """What one certificate of these logs says, with the inputs that its radius is between."""
    return CLAIM.format(inputs_text(*(log.value_range for log in logs)))


def settings(header: Header) -> dict[str, Any]:
    """All that the certificates depend on beside model and data."""
    names = ("sigma", "n0", "n", "alpha", "family", "bound", "beta", "seed")
    other = ("precision", "device", "row_by_row", "score")
    return {
        **{name: getattr(header, name) for name in names},
        "noise": "exact" if header.exact else "ordinary",
        **{name: getattr(header, name) for name in other},
    }


def _images(run: Source, images: Selection) -> dict[str, Any]:
    scope = run.contents.scope
    return {
        "dataset": run.header.dataset,
        "split": run.header.split,
        "which": describe_images(run.log),
        "counted": len(run.log.idx),
        "certified": len(run.contents.records),
        "asked": None if scope is None else len(images_of(scope)),
        "start": images.start,
        "stop": images.stop,
        "skip": images.skip,
    }


def hashes(run: Source) -> dict[str, str | None]:
    """SHA-256 of the run's files, and those that its journal and manifest name."""
    manifest = run.folder / MANIFEST
    return {
        "journal": sha256_of_file(run.folder / JOURNAL),
        "table": sha256_of_file(run.folder / TABLE),
        "manifest": sha256_of_file(manifest) if manifest.is_file() else None,
        "weights": run.header.weights_sha256,
        "data": run.header.data_sha256,
        "training_data": run.model and (run.model.data_sha256 or None),
    }


def versions(run: Source) -> dict[str, Any]:
    """The versions that made the certificates, and those that made the model."""
    made = {"macer": run.header.macer, "torch": run.header.torch, "cpu": run.header.cpu}
    return {"certified": made, "trained": versions_of(run.folder)}


def commands(run: Source, images: Selection, radius: float | None) -> dict[str, str]:
    """How to certify again, to verify and to report; RUN, MODEL, DATA and NEW are paths.

    Certificates that lie in no run's folder are of a MODEL that lies elsewhere. Of arrays, which
    only Python can be given, DATA are the inputs and their labels.
    """
    asked = _flags(_range(run.contents))
    given = "" if radius is None else f" --radius {radius!r}"
    header = run.header
    in_python = header.dataset == ARRAYS
    data = "" if in_python else " --data DATA"
    of_model = f"MODEL --sigma {header.sigma!r} --dataset {header.dataset}"
    target, of = ("RUN", "") if run.model else (of_model, " --target MODEL")
    parts = {"start": images.start or None, "stop": images.stop, "skip": images.skip}
    chosen = _flags({k: v for k, v in parts.items() if v is not None and (k, v) != ("skip", 1)})
    certify = f"macer certify {target}{data}{asked}{_setting_flags(header)} --out NEW"
    verify = f"macer verify RUN{of}{data}{asked}"
    return {
        "certify": _certify_arrays(run) if in_python else certify,
        "verify": _verify_arrays(run) if in_python else verify,
        "report": f"macer report RUN{chosen}{given}{data} --html review.html "
        "--evidence evidence.json",
    }


def _certify_arrays(run: Source) -> str:
    """How to certify arrays again, in Python."""
    images = [f"{name}={value}" for name, value in _range(run.contents).items()]
    chosen = run.header.recipe
    settings = [f"{one.name}={getattr(chosen, one.name)!r}" for one in fields(chosen)]
    target = "RUN" if run.model else "MODEL"
    return f"macer.open_run('{target}').certify(DATA, {', '.join(images + settings)}, out='NEW')"


def _verify_arrays(run: Source) -> str:
    """How to check certificates of arrays, in Python."""
    what = "'RUN').verify(DATA)" if run.model else "'MODEL').verify(DATA, out='RUN')"
    return f"macer.open_run({what}"


def _range(contents: Contents) -> dict[str, int]:
    """Start, stop and skip of the images that were asked for, if one range has them."""
    if contents.scope is None or len(contents.scope) != 1:
        return {}
    [(start, stop, step)] = contents.scope
    if step == 1:
        return {"start": start, "stop": stop}
    return {} if start % step else {"start": start, "stop": stop, "skip": step}


def _flags(values: Mapping[str, int]) -> str:
    return "".join(f" --{name} {value}" for name, value in values.items())


def _setting_flags(header: Header) -> str:
    alpha, family = header.alpha, header.family
    level = f"--alpha {alpha!r}" if family is None else f"--alpha {alpha * family:.12g} --family"
    flags = [
        *(f"--n0 {header.n0}", f"--n {header.n}", level),
        *(f"--bound {header.bound}", f"--seed {header.seed}", f"--precision {header.precision}"),
        *(["--held-out"] if header.split == "train" else []),
        *([] if header.exact else ["--no-exact"]),
        *(["--row-by-row"] if header.row_by_row else []),
        *(["--score"] if header.score else []),
        *([f"--beta {header.beta!r}"] if header.beta != 1.0 else []),
    ]
    return " " + " ".join(flags)


def write_evidence(document: Mapping[str, Any], path: Path) -> None:
    """Write the document as text that people can read and sign."""
    text = json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False)
    write_file(path, (text + "\n").encode())


def check_evidence_path(path: Path) -> None:
    """Refuse a path that is no file of JSON, so that nothing else is overwritten."""
    check_ending(path, "evidence", ".json")
