"""Algorithm 1 and other losses, one file each; LOSSES has them by their names."""

from collections.abc import Collection
from dataclasses import replace

from macer.losses.batch import Batch
from macer.losses.catrs import catrs
from macer.losses.consistency import consistency
from macer.losses.denoising import denoising
from macer.losses.gaussian import gaussian
from macer.losses.macer import macer, macer_loss
from macer.losses.macer_consistency import macer_consistency
from macer.losses.macer_hard_noise import macer_hard_noise
from macer.losses.objective import Objective, checked
from macer.losses.smoothadv import smoothadv, smoothadv_phase
from macer.losses.smoothmix import smoothmix, smoothmix_phase
from macer.losses.stability import stability
from macer.losses.sun import sun, sun_phase
from macer.recipes import TrainRecipe, named_recipe
from macer.recipes.named import naming
from macer.system.errors import Mistake
from macer.system.user_code import import_function, names_a_function, nearest

LOSSES: dict[str, Objective] = {
    "macer": Objective(macer),
    "gaussian": Objective(gaussian),
    "stability": Objective(stability),
    "consistency": Objective(consistency),
    "macer-consistency": Objective(macer_consistency),
    "macer-hard-noise": Objective(macer_hard_noise),
    "smoothadv": Objective(smoothadv, smoothadv_phase),
    "smoothmix": Objective(smoothmix, smoothmix_phase),
    "catrs": Objective(catrs),
    "sun": Objective(sun, sun_phase),
    "denoising": Objective(denoising),
}

# Their attacks are on vectors of three dimensions, some in [0, 1], or they train a denoiser.
IMAGE_LOSSES = ("smoothadv", "smoothmix", "macer-hard-noise", "sun", "catrs", "denoising")

__all__ = [
    "IMAGE_LOSSES",
    "LOSSES",
    "Batch",
    "Objective",
    "completed",
    "find_objective",
    "macer_loss",
]


def find_objective(name: str) -> Objective:
    """A loss by its name, or a user's own as package.module:function."""
    if name in LOSSES:
        return LOSSES[name]
    if not names_a_function(name):
        raise Mistake(
            f"unknown loss {name!r}{nearest(name, LOSSES)}; choose from {', '.join(LOSSES)}, "
            "or name a function of your own as package.module:function"
        )
    return Objective(import_function(name))  # type: ignore[arg-type]  # `one_per_image` checks it


def completed(recipe: TrainRecipe) -> TrainRecipe:
    """The recipe with all settings of its loss, or a Mistake that names the first wrong one."""
    loss = checked(recipe.loss, find_objective(recipe.loss.name).loss)
    if recipe.lam_schedule != "constant" and "lam" not in loss:
        raise Mistake(
            f"lam_schedule must be constant with the loss {loss.name}, which has no setting lam, "
            f"got {recipe.lam_schedule}"
        )
    return replace(recipe, loss=loss)


def load_recipe(name: str, *, code: Collection[str] = ()) -> TrainRecipe:
    """A recipe by its name, or that of a TOML file, with all settings of its loss.

    Args:
        code: modules that the file may name.
    """
    recipe = named_recipe(name, code=code)
    with naming(name):
        return completed(recipe)
