"""MACER and Consistency together, on noise that was made harder."""

from dataclasses import replace

from torch import Tensor

from macer.attacks.noise import sphere_attack
from macer.losses.batch import Batch
from macer.losses.consistency import macer_consistency


def macer_hard_noise(batch: Batch) -> Tensor:
    """The objective of `macer_consistency` at x + η*ⱼ, one loss an image."""
    return macer_consistency(hardened(batch))


def hardened(batch: Batch) -> Batch:
    """The batch with its noise moved.

    η*ⱼ: ηⱼ moved up the loss of x + ηⱼ, at its own length, until it deceives       [Sun+24]
    """
    recipe = batch.recipe
    noise = sphere_attack(
        batch.network,
        batch.images,
        batch.labels,
        batch.noise,
        step_size=recipe.step_size or recipe.epsilon / max(recipe.steps, 1),
        steps=recipe.steps,
    )
    return replace(batch, noise=noise)
