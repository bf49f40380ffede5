"""A split of a data set: images, or other inputs, and their labels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from macer.data.account import Account
from macer.data.value_range import IMAGE_RANGE, ValueRange

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
        images: (images, channels, height, width) uint8, contiguous; or the files that hold them;
            or inputs of another value_range, (inputs, …) float32
        labels: (images,) int64
        dataset: the name of their data set
        classes: the names of the classes by label, if they are known
        files: the name of each image's file, for a folder of photographs
        account: what was read and what was not, for a folder of photographs
        value_range: the least and the largest value of an input, None for any; images have (0, 1)
    """

    images: Images
    labels: np.ndarray
    dataset: str = ARRAYS
    classes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    account: Account | None = None
    value_range: ValueRange = IMAGE_RANGE

    @property
    def are_images(self) -> bool:
        """Whether the inputs are 8-bit images, and not floats in units of their own."""
        return self.value_range == IMAGE_RANGE

    def __iter__(self) -> Iterator[Any]:
        return iter((self.images, self.labels))

    def part(self, start: int, stop: int | None = None) -> "Split":
        """The images start … stop − 1 with their labels."""
        rows = slice(start, stop)
        files = self.files[rows]
        return replace(self, images=self.images[rows], labels=self.labels[rows], files=files)

    def image(self, idx: int) -> str:
        """An image as messages name it: by its number, and by its file if it has one."""
        known = f" ({self.files[idx]})" if 0 <= idx < len(self.files) else ""
        return f"image {idx}{known}"
