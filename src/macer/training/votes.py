"""A few votes for each image during training: estimates to choose by, not certificates."""

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.split import Images
from macer.models.modes import evaluating
from macer.smoothing.copies import channels_first, channels_last
from macer.smoothing.streams import Purpose, fill_normal
from macer.training.batches import as_floats

ROWS = 1024  # noisy copies whose noise is drawn at once
VALUES = 1 << 25  # pixel values in a batch of the network: 1024 rows of CIFAR-10, 222 of ImageNet


def count_votes(
    model: nn.Module,
    images: "Tensor | Images",
    *,
    samples: int,
    sigma: float,
    seed: int,
    purpose: Purpose,
    chunk: int = 0,
    device: torch.device,
) -> Tensor:
    """How often each class wins among an image's noisy copies: (images, classes) int64.

    votes_c = Σⱼ 1[argmax u(x + ηⱼ) = c],  ηⱼ ~ N(0, σ²I)                            [Cohen+19]

    The network is in eval mode during the count. The noise of a batch is one stream, identified by
    the position of its first image and by the chunk.

    Args:
        images: (images, channels, height, width) uint8, or other inputs, float32.
    """
    at_once = max(1, ROWS // samples)
    batches = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(images), at_once):
            pixels = channels_last(_tensor(images[start : start + at_once]).to(device))
            noise = torch.empty((len(pixels), samples, *pixels.shape[1:]), device=device)
            fill_normal(noise, seed=seed, purpose=purpose, image=start, chunk=chunk)
            noisy = noise.mul_(sigma).add_(as_floats(pixels[:, None]))
            copies = channels_first(noisy.flatten(0, 1))
            parts = torch.split(copies, max(1, VALUES // copies[0].numel()))
            batches.append(_votes(torch.cat([model(part) for part in parts]), samples))
    return torch.cat(batches).cpu()


def _tensor(images: "Tensor | Images") -> Tensor:
    return images if isinstance(images, Tensor) else torch.from_numpy(np.asarray(images))


def _votes(logits: Tensor, samples: int) -> Tensor:
    """The votes (images, classes) of logits (images · samples, classes)."""
    winners = nn.functional.one_hot(logits.argmax(dim=1), logits.shape[1])
    return winners.view(-1, samples, logits.shape[1]).sum(dim=1)
