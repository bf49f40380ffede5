"""`macer verify` and `macer attack`: do a run's certificates stand?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.parameters import (
    Code,
    Data,
    Device,
    Normalise,
    Size,
    SkipDamaged,
    Threads,
    Weights,
    computing_device,
)
from macer.cli.printing import Result, print_line
from macer.data.split import ARRAYS
from macer.recipes import Whole
from macer.runs.names import TABLE
from macer.runs.zoo import certificates_folder, in_zoo, passed_over
from macer.system.errors import Mistake

if TYPE_CHECKING:
    import torch

    from macer.certification.journal import Contents
    from macer.certification.target import PreparedModel
    from macer.data.selection import Selection
    from macer.data.sets import Split

Certificates = Annotated[
    Path,
    Parameter(
        help="A folder with certificates, or zoo:NAME for those in runs/zoo-NAME, else its own."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CertifiedModel:
    """The model that certificates are of, where it is not the run's own."""

    target: str | None = None
    "The model they are of; the run's own by default."
    weights: Weights = None
    normalise: Normalise = None
    code: Code = ()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CertifiedData:
    """The data set that certificates are of, where its name is not enough."""

    data: Data = None
    dataset: str | None = None
    "Data set, or package.module:function; the one that the certificates name by default."
    size: Size = None
    skip_damaged: SkipDamaged = False


def verify(
    run: Certificates,
    /,
    *,
    model: CertifiedModel = CertifiedModel(),
    resample: Whole | None = None,
    partial: bool = False,
    start: Whole | None = None,
    stop: Whole | None = None,
    skip: Whole | None = None,
    evidence: Path | None = None,
    signature: Path | None = None,
    signers: Path | None = None,
    data: CertifiedData = CertifiedData(),
    device: Device = "auto",
    threads: Threads = None,
) -> Result:
    """Audit a run's certificates: are all there, do they follow, from this model, drawn again?

    Certificates of arrays, which Python was given, are audited but for the data: labels are not
    compared and nothing is drawn again. `TrainedRun.verify` does that in Python.

    Parameters
    ----------
    resample
        Images to choose at random and to certify again from their seeds; by default as many as
        find a false record with probability 0.95, if one in a hundred is false.
    partial
        Verify the certificates that are there, even if some that were asked for are not.
    start
        With stop and skip: images that must be among them, whatever the journal was asked for.
    stop
        Image to stop before.
    skip
        Only images whose number is a multiple of this must be.
    evidence
        File by `macer report --evidence` that must be of this run, in every hash and figure.
    signature
        File by `ssh-keygen -Y sign -n macer` that must be a signature of the evidence.
    signers
        Keys that may have signed it: a file of allowed signers, as ssh-keygen has them.
    """
    from macer.audit import verify as verification
    from macer.certification.scope import images_of
    from macer.data.selection import Selection

    if resample is not None and resample < 0:
        raise Mistake(f"resample must be at least 0, got {resample}")
    signer = _check_evidence(run, evidence, signature, signers)
    where = computing_device(device, threads)
    contents = _certificates(run, model)
    demanded = Selection.given(start, stop, skip)
    if contents.header.dataset == ARRAYS and data == CertifiedData():
        split, prepared = None, _model_alone(run, model, contents, where)
    else:
        split, prepared = _sources(run, model, data, contents, where)
    expected = _demanded(split, resample, demanded)
    verification.check_complete(contents, expected, partial=partial)
    print_line(verification.scope_line(contents))
    print_line(f"{verification.recompute(contents)} certificates follow from their counts")
    verification.check_table(contents, certificates_folder(run) / TABLE)
    outputs = "" if contents.header.outputs is None else ", its outputs"  # older journals lack them
    data_too = "" if split is None else ", data, labels"
    print_line(f"model{outputs}{data_too} and table are those of the journal")
    resampled = _draw_again(contents, prepared, split, resample)
    return {
        "folder": certificates_folder(run),
        "certificates": len(contents.records),
        "asked": None if contents.scope is None else len(images_of(contents.scope)),
        "data_checked": split is not None,
        "resampled": resampled,
        "power": verification.power(len(contents.records), resampled),
        "evidence": evidence,
        "signer": signer,
    }


def _demanded(
    split: "Split | None", resample: int | None, demanded: "Selection | None"
) -> Sequence[int]:
    """The images that must be among the certified ones; without the data none can be named."""
    if split is None and (resample or demanded):
        raise Mistake(
            "resample, start, stop and skip must be left out for arrays, which were given in "
            "Python; macer.open_run(RUN).verify(data) draws again"
        )
    return () if split is None or demanded is None else demanded.among(len(split.images))


def _check_evidence(
    run: Path, evidence: Path | None, signature: Path | None, signers: Path | None
) -> str | None:
    """The evidence must be signed, if that is asked for, and of this run; who signed it."""
    from macer.audit.signature import check_signature
    from macer.reporting.evidence_check import check_evidence, parse_evidence, read_evidence

    given = {"evidence": evidence, "signature": signature, "signers": signers}
    if signature is not None or signers is not None:
        for name, file in given.items():
            if file is None:
                raise Mistake(f"{name} must be given with a signature; add --{name} FILE")
    if evidence is None:
        return None
    content = read_evidence(evidence)
    signer = None
    if signature is not None and signers is not None:
        signer = check_signature(content, signature, signers)
        print_line(f"{evidence} is signed by {signer}")
    check_evidence(parse_evidence(content, evidence), certificates_folder(run))
    print_line(f"{evidence} is of this run: hashes and figures are equal")
    return signer


def _draw_again(
    contents: "Contents", model: "PreparedModel", split: "Split | None", resample: int | None
) -> int:
    """Certify some images again from their seeds, where that can be repeated; how many."""
    from macer.audit import verify as verification
    from macer.system.progress import bar

    if split is None:
        print_line(
            "data and labels not checked and nothing sampled again: arrays were given in Python; "
            "macer.open_run(RUN).verify(data) does both"
        )
        return 0
    images = len(contents.records)
    if resample is None and (reason := verification.elsewhere(contents.header, model.device)):
        print_line(f"no image sampled again, since it cannot be done here: {reason}")
        return 0
    drawn = verification.enough(images) if resample is None else min(resample, images)
    if not drawn:
        print_line("no image sampled again: that the counts are those of the seed is not checked")
        return 0
    again = verification.resample(contents, model, split, images=drawn)
    with bar("sampling again", drawn, "images") as advance:
        for _ in again:
            advance(1)
    print_line(
        f"{drawn} images sampled again: equal counts; if one record in a hundred were false, one "
        f"of them would be found with probability {verification.power(images, drawn):.2f}"
    )
    return drawn


def attack(
    run: Certificates,
    /,
    *,
    model: CertifiedModel = CertifiedModel(),
    images: Whole = 100,
    scale: float = 0.999,
    restarts: Whole = 3,
    steps: Whole = 20,
    m: Whole = 32,
    n: Whole = 2000,
    seed: Whole = 0,
    data: CertifiedData = CertifiedData(),
    device: Device = "auto",
    threads: Threads = None,
) -> Result:
    """Try to falsify a run's certificates by attacks from inside their balls.

    Parameters
    ----------
    images
        Certified images to attack, the first ones.
    scale
        How far an attack may go, as a multiple of the certified radius; 2 shows that it works.
    restarts
        Attacks on an image: one from the image, the others from random points of the ball.
    steps
        Steps of an attack.
    m
        Noisy copies it goes through.
    n
        Fresh samples that judge what it has found.
    seed
        Seed of the noise.
    """
    from macer.audit.falsify import Search, chosen_records, falsify
    from macer.audit.findings import check, findings, summary
    from macer.system.progress import bar

    search = Search(scale=scale, restarts=restarts, steps=steps, m=m, n=n, seed=seed)
    contents = _certificates(run, model)
    split, prepared = _sources(run, model, data, contents, computing_device(device, threads))
    records = chosen_records(contents, images)
    trials = []
    with bar("attacking", restarts * len(records), "attacks") as advance:
        for trial in falsify(contents, records, prepared, split, search):
            trials.append(trial)
            advance(1)
    results = findings(trials, contents)
    for line in summary(results, search, split.image):
        print_line(line)
    check(trials, contents, split.image)
    return {"folder": certificates_folder(run), "search": search, "findings": results}


def _certificates(run: Path, model: CertifiedModel) -> "Contents":
    """A run's certificates."""
    from macer.audit import verify as verification
    from macer.system.progress import note

    for flag in ("weights", "normalise"):
        if getattr(model, flag) is not None and model.target is None:
            raise Mistake(f"target must be given with {flag}; add --target NAME")
    if line := passed_over(run):
        note(line)
    return verification.read_certificates(certificates_folder(run))


def _model_alone(
    run: Path, model: CertifiedModel, contents: "Contents", device: "torch.device"
) -> "PreparedModel":
    """The trained model that certificates are of, where the data are not at hand."""
    from macer.audit import verify as verification
    from macer.certification.target import at_sigma, check_target, trained_target

    header = contents.header
    name = model.target or _own_model(run, header.weights_sha256)
    check_target(name, weights=model.weights, normalise=model.normalise)
    trained, card = trained_target(name, code=model.code)
    target = at_sigma(trained, header.sigma)
    return verification.check_model(contents, target, card.value_range, device)


def _sources(
    run: Path,
    model: CertifiedModel,
    data: CertifiedData,
    contents: "Contents",
    device: "torch.device",
) -> tuple["Split", "PreparedModel"]:
    """The data and the model that a run's certificates are of."""
    from macer.audit import verify as verification
    from macer.certification.target import find_target
    from macer.data.file_lists import tell
    from macer.data.sets import Rules, load, sized
    from macer.runs.data_code import data_home

    name = sized(data.dataset or contents.header.dataset, data.size)
    verification.check_data_set(contents, name)
    target = model.target or _own_model(run, contents.header.weights_sha256)
    home = None if data.dataset else data_home(name, target, code=model.code, source=run)
    rules = Rules(skip_damaged=data.skip_damaged, duplicates="ignore")
    split = load(name, contents.header.split, data.data, rules=rules, home=home)
    certified = find_target(
        target,
        sigma=contents.header.sigma,
        split=split,
        classes=split.classes,
        weights=model.weights,
        normalise=model.normalise,
        code=model.code,
    )
    prepared = verification.check_sources(contents, certified, split, device)
    tell(split)
    return split, prepared


def _own_model(run: Path, sha256: str) -> str:
    """The model beside the certificates, or that of the run whose folder they lie in."""
    from macer.runs.run import Run
    from macer.system.files import sha256_of_file

    if in_zoo(run) or Run(run).model.is_file():
        return str(run)
    for folder in run.resolve().parents[:2]:  # of RUN/held-out, RUN/held-out/bernstein-4
        model = Run(folder).model
        if model.is_file() and sha256_of_file(model) == sha256:
            return str(folder)
    raise Mistake(
        f"target must be given where no model lies beside the certificates, in {run}; add "
        "--target RUN"
    )
