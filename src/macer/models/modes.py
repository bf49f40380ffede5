"""A network's mode, training or eval, and the type of its weights."""

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
    training = [part for model in models for part in model.modules() if part.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
