"""MACER and Consistency together, on noise that was made harder."""

from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.consistency import macer_consistency
from macer.noise_attacks import sphere_attack


def macer_hard_noise(batch: Batch) -> Tensor:
    """The objective of `macer_consistency` under `hard_noise`, one loss an image."""
    return macer_consistency(batch, hard_noise(batch))


def hard_noise(batch: Batch) -> Tensor:
    """The batch's noise, each vector moved up its own loss at its own length.  [Sun+24]"""
    recipe = batch.recipe
    return sphere_attack(
        batch.network,
        batch.images,
        batch.labels,
        batch.noise,
        step_size=recipe.step_size or recipe.epsilon / max(recipe.steps, 1),
        steps=recipe.steps,
    )
