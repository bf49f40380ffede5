"""How a model does on held-out training images, while it is being trained."""

import numpy as np
import torch
from scipy.special import ndtri
from torch import nn

from macer.data import Split
from macer.noise import Purpose
from macer.recipes import TrainRecipe
from macer.votes import ROWS, count_votes

SAMPLES = 32  # noisy copies of each image
IMAGES = ROWS // SAMPLES  # in a batch


def validate(
    model: nn.Module, held_out: Split, recipe: TrainRecipe, *, device: torch.device
) -> dict[str, float]:
    """Accuracy of the smoothed classifier and its mean radius, estimated from a few votes.

    The radius is σΦ⁻¹(p̂) with p̂ kept below 1 − 1/2n, and 0 where the vote is wrong: a number to
    compare settings by, not a certificate.
    """
    votes = count_votes(
        model,
        torch.from_numpy(held_out.images),
        samples=SAMPLES,
        sigma=recipe.sigma,
        seed=recipe.seed,
        purpose=Purpose.VALIDATION,
        device=device,
    ).numpy()
    right = votes.argmax(axis=1) == held_out.labels
    p_hat = votes[np.arange(len(votes)), held_out.labels] / SAMPLES
    radius = recipe.sigma * ndtri(np.clip(p_hat, 0.5, 1 - 0.5 / SAMPLES))
    return {
        "validation_accuracy": float(right.mean()),
        "validation_radius": float((radius * right).mean()),
    }
