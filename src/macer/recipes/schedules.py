"""The learning rate, λ and an attack's share as functions of the time trained, in epochs."""

import math

from macer.recipes import TrainRecipe


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
    """λ after `epoch` epochs.

    Deferred is the paper's model for σ = 1.00: "first train with λ = 0.0, and then change to
    λ = 12.0 after learning rate decay" [Zhai+20, Table 4].
    """
    if recipe.lam_schedule == "deferred":
        return recipe.lam if epoch >= recipe.lr_decays[0] else 0.0
    if recipe.lam_schedule == "ramp":
        return recipe.lam * min(1.0, epoch / recipe.epochs / recipe.lam_ramp)
    return recipe.lam


def attack_share(recipe: TrainRecipe, epoch: float) -> float:
    """The share of SmoothAdv's ε, or of SmoothMix's η, that counts after `epoch` epochs.

    min(1, (e + 1) / epsilon_ramp) in epoch e = 0, 1, …, the same all through it.   [Salman+19]
    """
    if not recipe.epsilon_ramp:
        return 1.0
    return min(1.0, (math.floor(epoch) + 1) / recipe.epsilon_ramp)
