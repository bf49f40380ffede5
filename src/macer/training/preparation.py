"""Prepare a training: its data, its first weights and its trainer, checked."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from macer.data.file_check import refuse_damaged
from macer.data.fingerprint import channel_statistics
from macer.data.image_files import ImageFiles
from macer.data.sets import DATASETS, Split
from macer.data.value_range import check_size
from macer.losses import IMAGE_LOSSES
from macer.models.normalisation import Normalisation, named_normalisation
from macer.recipes import TrainRecipe
from macer.runs.model_file import ModelCard
from macer.runs.run import Run
from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake
from macer.system.processes import SINGLE, Ranks, is_first
from macer.training.arguments import check_memory
from macer.training.held_out import hold_out
from macer.training.initial_weights import (
    check_initial_settings,
    check_unseen,
    find_initial,
    load_initial,
)
from macer.training.pseudo_labels import without_hidden_labels
from macer.training.step import Trainer
from macer.training.teachers import Teachers, load_teachers


def with_data_set(recipe: TrainRecipe, split: Split, run: Run, *, resume: bool) -> TrainRecipe:
    """The recipe with the name of the data set that the images come from.

    A resumed run keeps the recipe's own name if it began with it; `check_same` compares the hash
    of its images.
    """
    began = run.read_manifest()["recipe"] if resume and run.manifest.is_file() else None
    if began and began.get("dataset") == recipe.dataset:
        return recipe
    return replace(recipe, dataset=split.dataset)


class StartingModel(NamedTuple):
    """A model as its training begins."""

    model: nn.Sequential
    record: dict[str, Any] | None  # what the manifest says of the file that its weights are from
    read: bool  # whether that file was read just now


def starting_model(
    init: Path | str | None,
    recipe: TrainRecipe,
    card: ModelCard,
    run: Run,
    data_sha256: str,
    training: Split,
    *,
    resume: bool,
) -> StartingModel:
    """A fresh model, or one with the weights of a file; a checkpoint may replace them later.

    Args:
        data_sha256: of all images, held-out ones too.
        training: the images to train on.
    """
    initial = find_initial(init, run, resume=resume)
    model = _fresh_model(recipe, card)
    record: dict[str, Any] | None = None
    if initial:
        check_unseen(initial, recipe, data_sha256)
        record = load_initial(model, initial, recipe, card, training)
    elif resume and run.manifest.is_file():
        record = run.read_manifest().get("init")
    check_initial_settings(recipe, record)
    return StartingModel(model, record, read=initial is not None)


def _fresh_model(recipe: TrainRecipe, card: ModelCard) -> nn.Sequential:
    torch.manual_seed(int(stream(recipe.seed, Purpose.INITIALISATION).integers(2**63)))
    return card.build()


def trainer_of(
    recipe: TrainRecipe,
    start: StartingModel,
    training: Split,
    teachers: Teachers,
    device: torch.device,
    ranks: Ranks,
) -> Trainer:
    """The trainer of a model as its training begins."""
    teacher = teachers["teacher"].model if "teacher" in teachers else None
    new = start.record["new"] if start.record else ()
    return Trainer(recipe, start.model, training, device, teacher=teacher, ranks=ranks, new=new)


def first_trainer(
    recipe: TrainRecipe,
    split: Split,
    classes: Sequence[str],
    *,
    device: torch.device,
    code: Collection[str] = (),
) -> Trainer:
    """The trainer as `train` begins with it, of a recipe with all settings; nothing is written."""
    training, card = _checked(recipe, split, classes, device)
    start = StartingModel(_fresh_model(recipe, card), None, read=False)
    teachers = load_teachers(recipe, card, device, code=code)
    return trainer_of(recipe, start, training, teachers, device, SINGLE)


def try_training(
    recipe: TrainRecipe,
    split: Split,
    classes: Sequence[str],
    *,
    device: torch.device,
    code: Collection[str] = (),
    untrained: Collection[str] = (),
) -> None:
    """Refuse now what `train` would refuse later: prepare it, and take a step on two images.

    Args:
        recipe: with all settings; it begins with fresh weights.
        device: of the training; the step is taken on the CPU.
        code: modules that the files of teachers may name, see `load_model`.
        untrained: fields of teachers that do not exist yet; a fresh network stands for them.
    """
    training, card = _checked(recipe, split, classes, device)
    check_initial_settings(recipe, None)
    cpu = torch.device("cpu")
    there = recipe.changed(**dict.fromkeys(untrained, ""))
    teachers = load_teachers(there, card, cpu, code=code)
    teacher: nn.Module | None = card.build() if "teacher" in untrained else None
    teacher = teachers["teacher"].model if "teacher" in teachers else teacher
    few = replace(recipe, batch=2, labelled=0, pseudo="", drop_below=0.0)
    model = _fresh_model(recipe, card)
    next(Trainer(few, model, training.part(0, 2), cpu, teacher=teacher).rest_of_epoch())


def _checked(
    recipe: TrainRecipe, split: Split, classes: Sequence[str], device: torch.device
) -> tuple[Split, ModelCard]:
    """The images to train on and what the model file will say, or a Mistake."""
    check_images(split, recipe)
    training, _ = hold_out(split, recipe)
    training = without_hidden_labels(training, recipe)
    check_memory(recipe, split.images.shape[1:], device)
    return training, card_of(recipe, training, tuple(classes))


def check_images(split: Split, recipe: TrainRecipe) -> None:
    """Refuse what can be done only with images, only with those in memory, or only in files."""
    if not split.are_images:
        _check_inputs(split, recipe)
        return
    if isinstance(split.images, ImageFiles):
        for name in ("crop", "drop_epoch", "pseudo"):
            if value := getattr(recipe, name):
                raise Mistake(f"{name} must be left out with {recipe.dataset}, got {value}")
        if split.account is None and is_first():  # else they have been looked at
            refuse_damaged(split.images)
    elif recipe.resized_crop:
        raise Mistake(
            f"resized_crop must be 0 with {recipe.dataset}, got {recipe.resized_crop}; use crop"
        )
    size = min(split.images.shape[2:])
    if recipe.crop > size:
        raise Mistake(f"crop must be at most the images' size, {size}, got {recipe.crop}")


def _check_inputs(split: Split, recipe: TrainRecipe) -> None:
    """Refuse what only images have, and values that lose the noise to rounding."""
    what = f"with inputs of the value_range {split.value_range}, which are no images"
    for name, none in (
        ("crop", 0), ("flip", False), ("resized_crop", 0.0), ("normalise", "none"),
        ("denoiser", "none"),
    ):  # fmt: skip
        if (value := getattr(recipe, name)) != none:
            raise Mistake(f"{name} must be {none} {what}, got {value}")
    if recipe.precision == "bf16":  # it rounds noise away from values that float32 can take
        raise Mistake(f"precision must be auto or fp32 {what}, got bf16")
    if recipe.loss.name in IMAGE_LOSSES:
        names = ", ".join(IMAGE_LOSSES)
        raise Mistake(f"loss must be none of {names} {what}, got {recipe.loss.name}")
    values = np.asarray(split.images)
    check_size(float(values.min()), float(values.max()), recipe.sigma)


def card_of(recipe: TrainRecipe, split: Split, classes: tuple[str, ...]) -> ModelCard:
    """What the model file will say of the model."""
    mean, std = _normalisation(recipe, split)
    return ModelCard(
        architecture=recipe.model,
        classes=classes,
        shape=tuple(int(size) for size in split.images.shape[1:]),
        mean=mean,
        std=std,
        sigma=recipe.sigma,
        dataset=recipe.dataset,
        denoiser=recipe.denoiser,
        value_range=split.value_range,
    )


def _normalisation(recipe: TrainRecipe, split: Split) -> Normalisation:
    """What the recipe names, or the statistics of the data set or of the training images."""
    if not split.are_images:
        return Normalisation((), ())
    if recipe.normalise != "data":
        return named_normalisation(recipe.normalise, split.images.shape[1], also="data")
    known = DATASETS.get(recipe.dataset)
    if known and known.mean and known.std:
        return Normalisation(known.mean, known.std)
    return Normalisation(*channel_statistics(split))
