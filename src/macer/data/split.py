"""A split of a data set: images and their labels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

SPLITS = ("train", "test")
ARRAYS = "arrays"  # the name of a data set that a caller passes as arrays


class Images(Protocol):
    """An array of images, or the files that hold them; `np.asarray` gives the pixels of both."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(images, channels, height, width)."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: Any, /) -> Any: ...

    def __array__(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split and their labels; `images, labels = split` unpacks it.

    Args:
        images: (images, channels, height, width) uint8, contiguous; or the files that hold them
        labels: (images,) int64
        dataset: the name of their data set
    """

    images: Images
    labels: np.ndarray
    dataset: str = ARRAYS

    def __iter__(self) -> Iterator[Any]:
        return iter((self.images, self.labels))

    def part(self, start: int, stop: int | None = None) -> "Split":
        """The images start … stop − 1 with their labels."""
        rows = slice(start, stop)
        return replace(self, images=self.images[rows], labels=self.labels[rows])
