"""`macer verify` and `macer attack`: do a run's certificates stand?"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.commands.parameters import Data, Device, Normalise, Weights, chosen_device
from macer.commands.printing import print_line
from macer.mistake import Mistake
from macer.recipes import Whole
from macer.zoo import certificates_folder, in_zoo

if TYPE_CHECKING:
    from macer.data import Split
    from macer.journal import Contents
    from macer.targets import Target

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


def verify(
    run: Certificates,
    /,
    *,
    model: CertifiedModel = CertifiedModel(),  # frozen
    resample: Whole = 0,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Audit a run's certificates: recompute them from their counts, check hashes, draw again.

    Parameters
    ----------
    resample
        Images to choose at random and to certify again from their seeds.
    """
    from macer import verification
    from macer.progress import bar

    if resample < 0:
        raise Mistake(f"resample must be at least 0, got {resample}")
    device_ = chosen_device(device)
    contents, split, found = _sources(run, model, data)
    print_line(f"{verification.recompute(contents)} certificates follow from their counts")
    verification.check_table(contents, certificates_folder(run) / "certificates.tsv")
    print_line("weights, data, labels and table are those of the journal")
    if resample:
        again = verification.resample(contents, found, split, images=resample, device=device_)
        with bar("sampling again", min(resample, len(contents.records)), "images") as advance:
            for _ in again:
                advance(1)
        print_line(f"{min(resample, len(contents.records))} images sampled again: equal counts")


def attack(
    run: Certificates,
    /,
    *,
    model: CertifiedModel = CertifiedModel(),  # frozen
    images: Whole = 100,
    scale: float = 0.999,
    restarts: Whole = 3,
    steps: Whole = 20,
    m: Whole = 32,
    n: Whole = 2000,
    seed: Whole = 0,
    data: Data = None,
    device: Device = "auto",
) -> None:
    """Try to falsify a run's certificates by attacks from inside their balls.

    Parameters
    ----------
    images
        Certified images to attack, the first ones.
    scale
        How far an attack may go, as a multiple of the certified radius; 2 shows that it bites.
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
    from macer import falsification
    from macer.progress import bar

    search = falsification.Search(scale=scale, restarts=restarts, steps=steps, m=m, n=n, seed=seed)
    device_ = chosen_device(device)
    contents, split, found = _sources(run, model, data)
    records = falsification.chosen_records(contents, images)
    trials = []
    with bar("attacking", restarts * len(records), "attacks") as advance:
        for trial in falsification.falsify(contents, records, found, split, search, device=device_):
            trials.append(trial)
            advance(1)
    for line in falsification.summary(trials, contents, search):
        print_line(line)
    falsification.check(trials, contents)


def _sources(
    run: Path, model: CertifiedModel, data: Path | None
) -> tuple["Contents", "Split", "Target"]:
    """A run's certificates, and the data and the model that they are of."""
    from macer import verification
    from macer.data import classes_of, load
    from macer.targets import find_target

    for flag in ("weights", "normalise"):
        if getattr(model, flag) is not None and model.target is None:
            raise Mistake(f"target must be given with {flag}; add --target NAME")
    contents = verification.read_certificates(certificates_folder(run))
    name = contents.header["dataset"]
    target = model.target or _own_model(run, contents.header["weights_sha256"])
    split = load(name, contents.header.get("split", "test"), data)
    found = find_target(
        target,
        sigma=contents.header["sigma"],
        split=split,
        classes=classes_of(name, data),
        weights=model.weights,
        normalise=model.normalise,
    )
    verification.check_sources(contents, found, split)
    return contents, split, found


def _own_model(run: Path, sha256: str) -> str:
    """The model beside the certificates, or that of the run whose folder they lie in."""
    from macer.files import sha256_of_file
    from macer.run import Run

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
