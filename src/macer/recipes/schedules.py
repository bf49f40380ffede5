"""The learning rate, λ and ramps as functions of the epochs trained."""

import math

from macer.recipes.fields import TrainRecipe


def learning_rate(recipe: TrainRecipe, epoch: float) -> float:
    """The learning rate after `epoch` epochs, a whole number or a part of one."""
    share = epoch / recipe.epochs
    if recipe.lr_schedule == "step":
        return recipe.lr * 0.1 ** sum(epoch >= decay for decay in recipe.lr_decays)
    if recipe.lr_schedule == "cosine":
        return recipe.lr * (1 + math.cos(math.pi * share)) / 2
    if share < recipe.lr_peak:
        return recipe.lr * share / recipe.lr_peak
    return recipe.lr * (1 - share) / (1 - recipe.lr_peak)


def trade_off(recipe: TrainRecipe, epoch: float) -> float:
    """λ after `epoch` epochs: what the loss's setting `lam` is then; 0 if it has none.

    Deferred is the paper's model for σ = 1.00: "first train with λ = 0.0, and then change to
    λ = 12.0 after learning rate decay" [Zhai+20, Table 4].
    """
    lam: float = recipe.loss.get("lam", 0.0)
    if recipe.lam_schedule == "deferred":
        return lam if epoch >= recipe.lr_decays[0] else 0.0
    if recipe.lam_schedule == "ramp":
        return lam * min(1.0, epoch / recipe.epochs / recipe.lam_ramp)
    return lam


def ramp_share(epoch: float, ramp: int) -> float:
    """The share of an attack's length, or of a weight, that counts after `epoch` epochs.

    min(1, (e + 1) / ramp) in epoch e = 0, 1, …, the same throughout the epoch.     [Salman+19]
    """
    return min(1.0, (math.floor(epoch) + 1) / ramp) if ramp else 1.0
