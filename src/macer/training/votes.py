"""A few votes for each image: estimates to choose by, not certificates."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.split import Images
from macer.models.modes import evaluating, network_dtype
from macer.smoothing.copies import channels_first, channels_last
from macer.smoothing.streams import Purpose, fill_normal
from macer.training.batches import as_floats

ROWS = 1024  # noisy copies whose noise is drawn at once
VALUES = 1 << 25  # pixel values in a batch of the network: 1024 rows of CIFAR-10, 222 of ImageNet


def count_votes(batches: Iterable[Tensor]) -> Tensor:
    """How often each class wins among an image's noisy copies: (images, classes) int64.

    votes_c = Σⱼ 1[argmax u(x + ηⱼ) = c],  ηⱼ ~ N(0, σ²I)                            [Cohen+19]

    Args:
        batches: of `sampled_logits`.
    """
    return torch.cat([_votes(logits) for logits in batches]).cpu()


def sampled_logits(
    model: nn.Module,
    images: "Tensor | Images",
    *,
    samples: int,
    sigma: float,
    seed: int,
    purpose: Purpose,
    chunk: int = 0,
    device: torch.device,
) -> Iterator[Tensor]:
    """u(x + ηⱼ) of some images after another, (images, samples, classes).

    The network is in eval mode. The noise of a batch is one stream, identified by the position of
    its first image and by the chunk.

    Args:
        images: (images, channels, height, width) uint8, or other inputs, float32.
    """
    at_once = max(1, ROWS // samples)
    for start in range(0, len(images), at_once):
        with evaluating(model), torch.inference_mode():
            pixels = channels_last(_tensor(images[start : start + at_once]).to(device))
            noise = torch.empty((len(pixels), samples, *pixels.shape[1:]), device=device)
            fill_normal(noise, seed=seed, purpose=purpose, image=start, chunk=chunk)
            noisy = noise.mul_(sigma).add_(as_floats(pixels[:, None]))
            copies = channels_first(noisy.flatten(0, 1)).to(network_dtype(model))
            parts = torch.split(copies, max(1, VALUES // copies[0].numel()))
            logits = torch.cat([model(part) for part in parts])
        yield logits.view(len(pixels), samples, -1)


def _tensor(images: "Tensor | Images") -> Tensor:
    return images if isinstance(images, Tensor) else torch.from_numpy(np.asarray(images))


def _votes(logits: Tensor) -> Tensor:
    """The votes (images, classes) of logits (images, samples, classes)."""
    return nn.functional.one_hot(logits.argmax(dim=2), logits.shape[2]).sum(dim=1)
