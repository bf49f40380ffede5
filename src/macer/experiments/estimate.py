"""What a series of trainings and certifications takes here, measured before it begins."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from macer.certification.budget import Pace, certification_seconds
from macer.certification.pace import measured_pace
from macer.certification.target import untrained_target
from macer.data.sets import Split
from macer.losses import completed
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.system.progress import bar
from macer.system.text import duration
from macer.training.preparation import first_trainer
from macer.training.speed import steps_per_second


@dataclass(frozen=True)
class Work:
    """What is left to do of one model."""

    recipe: TrainRecipe
    epochs: int  # to train
    images: int  # to certify


def measured(
    works: Sequence[Work],
    training: Callable[[str], tuple[Split, tuple[str, ...]]],
    *,
    settings: CertifyRecipe,
    betas: tuple[float, ...],
    device: torch.device,
    code: Collection[str] = (),
) -> str:
    """The time of all trainings, validation apart, and of all certifications, in words.

    Each kind of training is measured by a few steps and each network by a few samples.

    Args:
        training: the training images of a data set and its classes, by its name.
        betas: at which the soft classifier is certified too, from the same samples.
        code: modules that the files of teachers may name, see `load_model`.
    """

    @cache
    def seconds_of_epoch(dataset: str, *kind: object) -> float:
        recipe = next(w.recipe for w in works if _kind(w.recipe) == (dataset, *kind))
        split, classes = training(dataset)
        trainer = first_trainer(completed(recipe), split, classes, device=device, code=code)
        return trainer.steps_per_epoch / steps_per_second(trainer)

    @cache
    def pace_of(dataset: str, model: str) -> Pace:
        split, classes = training(dataset)
        channels, height, width = split.images.shape[1:]
        target = untrained_target(
            model, sigma=1.0, shape=(channels, height, width), num_classes=len(classes)
        )
        return measured_pace(target, device=device, precision=settings.precision, betas=betas)

    trained = certified = 0.0
    with bar("measuring", len(works), "models", transient=True) as advance:
        for work in works:
            if work.epochs:
                trained += work.epochs * seconds_of_epoch(*_kind(work.recipe))
            if work.images:
                pace = pace_of(work.recipe.dataset, work.recipe.model)
                certified += pace.preparation
                certified += certification_seconds(pace, work.images, n0=settings.n0, n=settings.n)
            advance(1)
    return f"{duration(trained)} of training and {duration(certified)} of certification"


def _kind(recipe: TrainRecipe) -> tuple[str, ...]:
    """What the time of an epoch depends on, the data set first."""
    sizes = recipe.model, recipe.denoiser, recipe.batch, recipe.k, recipe.precision, recipe.labelled
    loss = recipe.loss
    terms = loss.name, bool(loss.get("lam")), loss.get("attack"), loss.get("steps")
    return (recipe.dataset, *map(str, (*sizes, recipe.optimizer, *terms)))
