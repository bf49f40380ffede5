"""The mode of a network, training or eval, and the type of its weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def network_dtype(model: nn.Module) -> torch.dtype:
    """The type of the network's weights, which is that of the images it is given."""
    types = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(types, torch.float32)


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """The models in eval mode, each of their parts back in its own mode afterwards."""
    training = [part for model in models for part in model.modules() if part.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
