"""Test images that come with macer, for models that take them."""

import base64
from functools import cache

import torch
from torch import Tensor

from macer.data.sets import load
from macer.runs.model_file import ModelCard
from macer.server.answers import png
from macer.server.limits import Refusal

_COUNT = 12


@cache
def _images() -> Tensor:
    return torch.from_numpy(load("mnist-sample", "test").images[:_COUNT].copy())


def examples(card: ModelCard) -> int:
    """How many of these images the model takes; they are numbered from 0."""
    return _COUNT if card.shape == (1, 28, 28) and len(card.classes) == 10 else 0


def example_png(number: int) -> bytes:
    """One of the images as a PNG file."""
    if not 0 <= number < _COUNT:
        raise Refusal(404, "address", f"number must be in 0…{_COUNT - 1}, got {number}")
    return base64.b64decode(png(_images()[number]))
