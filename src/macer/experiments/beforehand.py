"""A series of trainings, looked at before the first begins: what does not fit, what is left."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

import torch

from macer.certification.data_set import LONG
from macer.certification.journal import read_journal
from macer.data.arrays import class_names
from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.experiments.estimate import Work, measured
from macer.experiments.examination import Examination
from macer.losses import completed
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.runs.names import JOURNAL
from macer.runs.run import Run, check_same
from macer.system.errors import Mistake
from macer.system.progress import bar, note
from macer.system.text import counted
from macer.training.preparation import try_training, with_data_set

Planned = Mapping[str, Mapping[Path, TrainRecipe]]  # by name, then by the folder of a run


def look_ahead(
    planned: Planned,
    training: Split,
    exam: Examination,
    device: torch.device,
    code: Collection[str],
    *,
    untrained: Mapping[str, Collection[str]],
) -> None:
    """Refuse what a later training would refuse, and say how much there is to do.

    Args:
        untrained: by name, the fields of teachers that are trained here.
    """
    classes, sha256 = class_names(training.classes or None, training), fingerprint(training)
    with bar("trying the recipes", len(planned), "recipes", transient=True) as advance:
        for name, runs in planned.items():
            for folder, recipe in runs.items():
                _check_same(Run(folder), recipe, training, sha256)
                check_certificates(exam.place(folder), exam.settings, otherwise="--out")
            if not all(Run(folder).model.is_file() for folder in runs):
                try_training(
                    next(iter(runs.values())), training, classes,
                    device=device, code=code, untrained=untrained[name],
                )  # fmt: skip
            advance(1)
    _tell_extent(
        planned, training, exam, device, code, learning=[n for n in planned if untrained[n]]
    )


def _check_same(run: Run, recipe: TrainRecipe, training: Split, sha256: str) -> None:
    """Refuse to continue a run that has other settings or images."""
    if run.manifest.is_file():
        asked = with_data_set(recipe, training, run, resume=True)
        inputs = {"data_sha256": sha256, "models_sha256": {}}
        try:
            check_same(run, asked, inputs, completed)
        except Mistake as mistake:
            raise Mistake(f"{mistake}; choose another --out") from None


def _tell_extent(
    planned: Planned,
    training: Split,
    exam: Examination,
    device: torch.device,
    code: Collection[str],
    *,
    learning: Collection[str],
) -> None:
    """Say how much is left to do and, if it is much, how long that takes here.

    Args:
        learning: the names of recipes whose teachers are trained here; they are not measured.
    """
    settings, indices = exam.settings, exam.indices()
    works = {
        name: [
            left(Run(folder), recipe, indices, certificates=exam.place(folder))
            for folder, recipe in runs.items()
        ]
        for name, runs in planned.items()
    }
    every = list(chain.from_iterable(works.values()))
    if not any(work.epochs or work.images for work in every):
        return
    note(extent(every))
    samples = sum(
        work.epochs * len(training.images) * work.recipe.k
        + work.images * (settings.n0 + settings.n)
        for work in every
    )
    if samples < LONG[device.type]:
        return
    classes = class_names(training.classes or None, training)
    timed = chain.from_iterable(works[name] for name in works if name not in learning)
    taken = measured(
        list(timed), lambda _: (training, classes), settings=settings, betas=(), device=device,
        code=code,
    )  # fmt: skip
    others = f"; not counted: {', '.join(learning)}" if learning else ""
    note(f"measured here, they take {taken}{others}")


def check_certificates(folder: Path, settings: CertifyRecipe, *, otherwise: str) -> None:
    """Refuse to go on with certificates of other settings.

    Args:
        otherwise: what else to do, for the message.
    """
    journal = folder / JOURNAL
    if not journal.is_file():
        return
    header = read_journal(journal).header
    for name in ("n0", "n", "alpha"):
        if (made := getattr(header, name)) != (asked := getattr(settings, name)):
            raise Mistake(
                f"{name} must be {made}, that of the certificates in {folder}, got {asked}; "
                f"or give another {otherwise}"
            )


def left(
    run: Run, recipe: TrainRecipe, indices: Sequence[int], *, certificates: Path | None = None
) -> Work:
    """What is left to do of a model: epochs that were not recorded, images without certificates.

    Args:
        certificates: the folder of its certificates; the run's own by default.
    """
    journal = (certificates or run.folder) / JOURNAL
    epochs = len(run.read_metrics()) if run.manifest.is_file() else 0
    known = read_journal(journal).records if journal.is_file() else {}
    images = sum(idx not in known for idx in indices)
    return Work(recipe, max(recipe.epochs - epochs, 0), images)


def extent(works: Sequence[Work]) -> str:
    """How much there is left to do."""
    epochs, images = sum(work.epochs for work in works), sum(work.images for work in works)
    return (
        f"{counted(len(works), 'model')}: {counted(epochs, 'epoch')} of training, then "
        f"{counted(images, 'image')} to certify"
    )
