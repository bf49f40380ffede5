"""Which images of a data set are meant, by their numbers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macer.system.errors import Mistake


@dataclass(frozen=True)
class Selection:
    """The images i with start ≤ i < stop and i % skip = 0, as the field counts them."""

    start: int = 0
    stop: int | None = None  # None: to the last image
    skip: int = 1

    def __post_init__(self) -> None:
        if self.start < 0:
            raise Mistake(f"start must be at least 0, got {self.start}")
        if self.skip < 1:
            raise Mistake(f"skip must be at least 1, got {self.skip}")

    @classmethod
    def given(cls, start: int | None, stop: int | None, skip: int | None) -> "Selection | None":
        """What a user gives of the three; None if nothing."""
        if (start, stop, skip) == (None, None, None):
            return None
        return cls(start or 0, stop, 1 if skip is None else skip)

    def holds(self, idx: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these numbers are among them."""
        chosen: NDArray[np.bool_] = (idx >= self.start) & (idx % self.skip == 0)
        return chosen if self.stop is None else chosen & (idx < self.stop)

    def among(self, count: int, *, first: int = 0) -> list[int]:
        """The numbers of the images in a data set of `count`; at least one, or a Mistake.

        Args:
            first: leave out the images before this one, which a model has seen.
        """
        stop = count if self.stop is None else self.stop
        if stop > count:
            raise Mistake(f"stop must be at most the number of images, {count}, got {stop}")
        start = max(self.start, first)
        images = [i for i in range(start, stop) if i % self.skip == 0]
        if not images:
            known = f"held-out images {first}…{count - 1}" if first else f"{count} images"
            raise Mistake(
                f"start, stop and skip must choose an image, got none of the {known}: a multiple "
                f"of {self.skip} from {start} to below {stop}"
            )
        return images
