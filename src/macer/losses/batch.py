"""What a loss receives at a training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from macer.recipes import TrainRecipe
from macer.system.errors import Mistake


@dataclass(frozen=True)
class Batch:
    """Images, their noise, and the network to try them on.

    A loss is a function of a Batch that returns one value per image, (images,), with a gradient.
    It may call the network as often as it needs; most losses call it once, by `logits`.
    """

    network: nn.Module  # in training mode
    images: Tensor  # (images, channels, height, width) in [0, 1]
    labels: Tensor  # (images,) int64
    noise: Tensor  # (images, k, channels, height, width): η ~ N(0, σ²I)
    recipe: TrainRecipe
    epoch: float  # epochs trained so far; 2.5 is in the middle of the third
    uniform: Callable[[int], Tensor]  # so many numbers in [0, 1), the same when a step is repeated
    teacher: nn.Module | None = None  # the network that the setting `teacher` names, in eval mode

    def logits(self, images: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """The network's outputs (images, k, classes) on x + η, or on other images or noise."""
        images = self.images if images is None else images
        noise = self.noise if noise is None else noise
        noisy = (noise + images[:, None]).flatten(0, 1)  # in the noise's layout, channels last
        outputs: Tensor = self.network(noisy)
        return outputs.view(len(images), noise.shape[1], -1)


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in the precision of a loss: float32, whatever the network's; float64 stays."""
    return logits if logits.dtype == torch.float64 else logits.float()


def one_per_image(losses: Any, batch: Batch) -> Tensor:
    """What a loss returned, if it is one value per image; a user's own may return anything."""
    if not (isinstance(losses, Tensor) and losses.shape == batch.labels.shape):
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise Mistake(
            f"loss {batch.recipe.loss.name!r} must return one loss per image, of shape "
            f"{tuple(batch.labels.shape)}, got {got}"
        )
    return losses
