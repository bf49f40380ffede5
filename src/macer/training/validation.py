"""Validate a model on held-out training images during its training."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtri
from torch import nn

from macer.data.sets import Split
from macer.recipes import TrainRecipe
from macer.smoothing.streams import Purpose
from macer.system.typed import check_types, wrong
from macer.training.votes import ROWS, count_votes, sampled_logits


@dataclass(frozen=True)
class Validation:
    """How often a model is validated, and with how many samples."""

    every: int = 1  # epochs; the last epoch is always validated
    samples: int = 32  # noisy copies of each image, at most votes.ROWS

    def __post_init__(self) -> None:
        check_types(self)
        if self.every < 1:
            raise wrong("every", "at least 1", self.every)
        if not 1 <= self.samples <= ROWS:
            raise wrong("samples", f"from 1 to {ROWS}", self.samples)


def largest_estimate(sigma: float, samples: int) -> float:
    """The largest radius that n votes can estimate, when all are right: σΦ⁻¹(1 − 1/2n)."""
    return sigma * float(ndtri(_largest_share(samples)))


def _largest_share(samples: int) -> float:
    return 1 - 0.5 / samples


def validate(
    model: nn.Module,
    held_out: Split,
    recipe: TrainRecipe,
    *,
    samples: int,
    device: torch.device,
) -> dict[str, float]:
    """Accuracy of the smoothed classifier and its mean radius, estimated from a few votes.

    The radius is σΦ⁻¹(p̂), with p̂ at most 1 − 1/2n for n samples, and 0 if the vote is wrong. It
    is a number to compare settings by, not a certificate.
    """
    batches = sampled_logits(
        model,
        held_out.images,
        samples=samples,
        sigma=recipe.sigma,
        seed=recipe.seed,
        purpose=Purpose.VALIDATION,
        device=device,
    )
    votes = count_votes(batches).numpy()
    right = votes.argmax(axis=1) == held_out.labels
    p_hat = votes[np.arange(len(votes)), held_out.labels] / samples
    radius = recipe.sigma * ndtri(np.clip(p_hat, 0.5, _largest_share(samples)))
    return {
        "validation_accuracy": float(right.mean()),
        "validation_radius": float((radius * right).mean()),
        "validation_samples": samples,
    }
