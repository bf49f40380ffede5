"""Trained models that a training learns from: a recipe's `teacher` and its `pseudo`."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from macer.recipes import TrainRecipe
from macer.recipes.named import recipe_of_run
from macer.runs.model_file import ModelCard
from macer.runs.trained_model import open_model
from macer.system.errors import Mistake
from macer.system.text import inputs_text

TEACHERS = ("teacher", "pseudo")  # a setting of a loss, and a field of every recipe


def models_named(recipe: TrainRecipe) -> dict[str, str]:
    """The models that a recipe names, each a run, a model file or zoo:NAME, by setting or field."""
    named = {"teacher": str(recipe.loss.get("teacher") or ""), "pseudo": recipe.pseudo}
    return {field: name for field, name in named.items() if name}


class Teacher(NamedTuple):
    """A model in eval mode without gradients, and its file's SHA-256."""

    model: nn.Module
    sha256: str


Teachers = dict[str, Teacher]  # by field


def load_teachers(
    recipe: TrainRecipe, card: ModelCard, device: torch.device, *, code: Collection[str] = ()
) -> Teachers:
    """The models that the recipe names, by field.

    Args:
        card: of the model to be trained; teachers must have the same images and classes.
        code: modules that the teachers' files may name, see `load_model`.
    """
    paths = {field: Path(name) for field, name in models_named(recipe).items()}
    return {field: _load(field, path, card, device, code) for field, path in paths.items()}


def _load(
    field: str, path: Path, card: ModelCard, device: torch.device, code: Collection[str]
) -> Teacher:
    if not path.exists() and (first := recipe_of_run(str(path))):
        raise Mistake(f"no {field} at {path} yet; train it first: macer train {first}")
    loaded = open_model(path, code=code)
    model, own = loaded.model, loaded.card
    if own.shape != card.shape:
        required, got = (inputs_text(shape) for shape in (card.shape, own.shape))
        raise Mistake(f"{field} must be a model of {required}, got {path}, of {got}")
    if own.value_range != card.value_range:
        raise Mistake(
            f"{field} must be a model of inputs of the value_range {card.value_range}, got {path}, "
            f"of {own.value_range}"
        )
    if own.classes != card.classes:
        required, got = (_summary(classes) for classes in (card.classes, own.classes))
        raise Mistake(f"{field} must have the classes {required}, got {path}, with {got}")
    model.to(device)
    if len(card.shape) == 3:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Teacher(model.requires_grad_(False), loaded.sha256)


def _summary(classes: tuple[str, ...]) -> str:
    """The classes, or the first and the last if they are many."""
    return ", ".join(classes if len(classes) <= 10 else (*classes[:3], "…", classes[-1]))
