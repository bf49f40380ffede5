"""What a training objective is given at a step."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from macer.recipes import TrainRecipe


@dataclass(frozen=True)
class Batch:
    """Images, their noise, and the network to try them on.

    An objective is a function of a Batch that returns one loss an image, (images,), with a
    gradient. It calls the network as often as it likes; most do so once, by `logits`.
    """

    network: nn.Module  # in training mode
    images: Tensor  # (images, channels, height, width) in [0, 1]
    labels: Tensor  # (images,) int64
    noise: Tensor  # (images, k, channels, height, width): η ~ N(0, σ²I)
    recipe: TrainRecipe
    lam: float | Tensor  # λ at this step
    epoch: float  # epochs trained, with the part of the present one
    uniform: Callable[[int], Tensor]  # so many numbers in [0, 1), the same when a step is repeated
    teacher: nn.Module | None = None  # the recipe's, in eval mode

    def logits(self, images: Tensor | None = None, noise: Tensor | None = None) -> Tensor:
        """The network's outputs (images, k, classes) on x + η, or on other images or noise."""
        images = self.images if images is None else images
        noise = self.noise if noise is None else noise
        noisy = (noise + images[:, None]).flatten(0, 1)  # in the noise's layout, channels last
        outputs: Tensor = self.network(noisy)
        return outputs.view(len(images), noise.shape[1], -1)


Objective = Callable[[Batch], Tensor]
