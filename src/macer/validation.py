"""How a model does on held-out training images, while it is being trained."""

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from macer.data import Split
from macer.noise import Purpose, fill_normal
from macer.recipes import TrainRecipe
from macer.smoothing import evaluating

SAMPLES = 32  # noisy copies of each image
IMAGES = 32  # in a batch


def validate(
    model: nn.Module, held_out: Split, recipe: TrainRecipe, *, device: torch.device
) -> dict[str, float]:
    """Accuracy of the smoothed classifier and its mean radius, estimated from a few votes.

    The radius is σΦ⁻¹(p̂) with p̂ kept below 1 − 1/2n, and 0 where the vote is wrong: a number to
    compare settings by, not a certificate.
    """
    images = torch.from_numpy(held_out.images)
    with evaluating(model), torch.inference_mode():
        batches = [
            _votes(model, images[start : start + IMAGES].to(device), recipe, start)
            for start in range(0, len(images), IMAGES)
        ]
    votes = torch.cat(batches).cpu().numpy()
    right = votes.argmax(axis=1) == held_out.labels
    p_hat = votes[np.arange(len(votes)), held_out.labels] / SAMPLES
    radius = recipe.sigma * ndtri(np.clip(p_hat, 0.5, 1 - 0.5 / SAMPLES))
    return {
        "validation_accuracy": float(right.mean()),
        "validation_radius": float((radius * right).mean()),
    }


def _votes(model: nn.Module, images: Tensor, recipe: TrainRecipe, number: int) -> Tensor:
    """How often each class wins among the noisy copies of each image: (images, classes)."""
    pixels = images.permute(0, 2, 3, 1)[:, None].float() / 255
    noise = torch.empty((len(images), SAMPLES, *pixels.shape[2:]), device=images.device)
    fill_normal(noise, seed=recipe.seed, purpose=Purpose.VALIDATION, image=number, chunk=0)
    noisy = noise.mul_(recipe.sigma).add_(pixels).flatten(0, 1).permute(0, 3, 1, 2)
    logits = model(noisy)
    winners = nn.functional.one_hot(logits.argmax(dim=1), logits.shape[1])
    return winners.view(len(images), SAMPLES, -1).sum(dim=1)
