"""Test images that come with macer, for models that take them."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from macer.data.png import png_file
from macer.data.sets import load
from macer.runs.model_file import ModelCard
from macer.server.limits import Refusal

_COUNT = 12


@cache
def _images() -> NDArray[np.uint8]:
    return np.array(load("mnist-sample", "test").images[:_COUNT])


def examples(card: ModelCard) -> int:
    """How many of these images the model takes; they are numbered from 0."""
    return _COUNT if card.shape == (1, 28, 28) and len(card.classes) == 10 else 0


def example_png(number: int) -> bytes:
    """One of the images as a PNG file."""
    if not 0 <= number < _COUNT:
        raise Refusal(404, "address", f"number must be in 0…{_COUNT - 1}, got {number}")
    return png_file(_images()[number])
