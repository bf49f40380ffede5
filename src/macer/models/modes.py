"""The mode of a network, the type of its weights, and whether it has hooks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def network_dtype(model: nn.Module) -> torch.dtype:
    """The type of the network's weights; its images must have the same type."""
    types = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(types, torch.float32)


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put the models into eval mode; afterwards each of their parts gets its own mode back."""
    training = [part for model in models for part in model.modules() if _trains(part)]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _trains(part: nn.Module) -> bool:
    """Whether a part is in training mode; a frozen part of TorchScript has no mode."""
    return getattr(part, "training", False)


def has_hooks(model: nn.Module) -> bool:
    """Whether a part of the model runs other functions before or after its forward method."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
