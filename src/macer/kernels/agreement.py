"""What a network returns, and whether two networks are the same function up to rounding."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

FEW = 8  # images to try a network on


def logits_of(output: Any) -> Any:
    """A network's answer, or its `.logits`, which the models of some libraries return it in."""
    if isinstance(output, Tensor | fx.Proxy):  # a symbol has every attribute
        return output
    return getattr(output, "logits", output)


def few_images(shape: Sequence[int], *, seed: int) -> Tensor:
    """Random images, every second with noise: outside of [0, 1] a network may differ."""
    random = torch.Generator().manual_seed(seed)
    images = torch.rand((FEW, *shape), generator=random)
    images[::2] += torch.randn(images[::2].shape, generator=random)
    return images.contiguous(memory_format=torch.channels_last)


def agree(a: nn.Module, b: nn.Module, shape: tuple[int, int, int], *, tolerance: float) -> bool:
    """Whether b runs and differs from a by rounding only; a trace, for one, has only one branch."""
    like = next(a.parameters(), torch.zeros(()))
    # Other images than the probe's, since a model may remember those.
    images = few_images(shape, seed=1).to(like)
    with torch.inference_mode():
        logits = _logits(a, images)
        try:
            others = _logits(b, images)
        # A library may lack a kernel for this shape; a trace may return a plain dictionary.
        except (RuntimeError, AttributeError):
            return False
    same_shape = logits.shape == others.shape
    return same_shape and bool((logits - others).norm() <= tolerance * logits.norm())


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = logits_of(model(images.contiguous(memory_format=torch.channels_last)))
    return logits.double()
