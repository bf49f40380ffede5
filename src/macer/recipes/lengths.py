"""A recipe for fewer or more epochs, with all that happens in them at the same places."""

from typing import Any

from macer.recipes.fields import TrainRecipe
from macer.system.errors import Mistake

# Settings of losses that are epochs.
_RAMPS = ("epsilon_ramp", "eta_ramp")
_BEGINNINGS = ("attack_epoch",)


def check_share(share: float) -> None:
    """Refuse a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise Mistake(f"share must be in (0, 1], got {share:g}")


def shortened(recipe: TrainRecipe, share: float) -> TrainRecipe:
    """The recipe with this share of its epochs."""
    check_share(share)
    return of_epochs(recipe, _part(share, recipe.epochs))


def of_copies(recipe: TrainRecipe, copies: int) -> TrainRecipe:
    """The recipe with as many epochs as show the network about this many copies of an image.

    An epoch shows k copies of each image, so that trainings with several k cost about the same.
    """
    if copies < recipe.k:
        raise Mistake(f"copies must be at least k, {recipe.k}, got {copies}")
    return of_epochs(recipe, _part(copies / recipe.k, 1))


def of_epochs(recipe: TrainRecipe, epochs: int) -> TrainRecipe:
    """The recipe with this many epochs; its decays, ramps and beginnings move along."""
    if epochs == recipe.epochs:
        return recipe
    share, last = epochs / recipe.epochs, epochs - 1
    loss: dict[str, Any] = {ramp: round(share * recipe.loss.get(ramp, 0)) for ramp in _RAMPS}
    for name in _BEGINNINGS:
        loss[name] = _beginning(share, recipe.loss.get(name, 0), last)
    return recipe.changed(
        epochs=epochs,
        lr_decays=tuple(sorted({_part(share, epoch) for epoch in recipe.lr_decays})),
        drop_epoch=_beginning(share, recipe.drop_epoch, last),
        **{name: value for name, value in loss.items() if name in recipe.loss},
    )


def _part(share: float, epochs: int) -> int:
    return max(1, round(share * epochs))


def _beginning(share: float, epoch: int, last: int) -> int:
    """The epoch at which something begins; 0 stays 0."""
    return min(_part(share, epoch), last) if epoch else 0
