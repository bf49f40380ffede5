"""The arguments of `train` that are neither images nor a recipe's fields, checked."""

import math
import os
from collections.abc import Collection
from pathlib import Path

import torch

from macer.losses import completed, load_recipe
from macer.recipes import TrainRecipe
from macer.system.errors import Mistake
from macer.system.typed import require_type, wrong
from macer.training.validation import Validation


def given_recipe(recipe: TrainRecipe | str, *, code: Collection[str] = ()) -> TrainRecipe:
    """A recipe, or the one of a name or of a TOML file, with all settings of its loss.

    Args:
        code: modules that the file may name.
    """
    if isinstance(recipe, str):
        return load_recipe(recipe, code=code)
    require_type("recipe", recipe, TrainRecipe, "a TrainRecipe or the name of a recipe")
    return completed(recipe)


def given_folder(folder: Path | str | None) -> Path:
    """The folder of the run."""
    if not isinstance(folder, str | os.PathLike) or folder == "":
        raise wrong("folder", "the path of the run to write", folder)
    return Path(folder)


def given_device(device: torch.device | str) -> torch.device:
    """A device of this machine, or a Mistake."""
    require_type("device", device, str | torch.device, "cpu or cuda")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise wrong("device", "cpu or cuda", device) from None
    if found.type not in ("cpu", "cuda"):
        raise wrong("device", "cpu or cuda", str(device))
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise wrong("device", f"one of {torch.cuda.device_count()} GPUs, or cpu", str(device))
    return found


def check_settings_of_loop(
    *, resume: object, checkpoint_seconds: object, validation: object, watch: object
) -> None:
    """Refuse what the training's loop cannot use."""
    require_type("resume", resume, bool, "True or False")
    require_type("checkpoint_seconds", checkpoint_seconds, int | float, "a number of seconds")
    if not checkpoint_seconds >= 0:  # type: ignore[operator]
        raise wrong("checkpoint_seconds", "at least 0", checkpoint_seconds)
    require_type("validation", validation, Validation, "a macer.training.validation.Validation")
    if not (watch is None or callable(watch)):
        raise wrong("watch", "a function of an epoch's metrics", watch)


def check_memory(recipe: TrainRecipe, shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse steps whose noise alone is more than the device's memory.

    Args:
        shape: of an image
    """
    needed = 4 * recipe.batch * recipe.k * math.prod(shape)  # bytes of float32
    if needed > (memory := _memory(device)):
        raise Mistake(
            f"batch and k must fit the memory of {device.type}, {memory:,} bytes, got "
            f"{recipe.batch} and {recipe.k}, whose noise is {needed:,} bytes; lower one of them"
        )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
