"""The tally: what the samples of each image add up to."""

from typing import NamedTuple

import torch
from torch import Tensor

# Soft outputs are rounded down to multiples of 2⁻²⁰. Their sums are then integers, the same in
# any order, and Σ z² of so many samples still fits an int64.
SOFT_UNIT = 2.0**-20
MOST_SOFT_SAMPLES = 2**23 - 1


class Tally(NamedTuple):
    """What the samples of each image add up to, in int64."""

    votes: Tensor  # (images, classes): how often f(x + η) = c
    first: Tensor  # (images, betas, classes): Σⱼ zᶜ(x + ηⱼ) in units of 2⁻²⁰, A[1, :]
    second: Tensor  # (images, betas, classes): Σⱼ zᶜ(x + ηⱼ)² in units of 2⁻⁴⁰, A[2, :]

    @classmethod
    def zeros(cls, images: int, betas: int, classes: int, device: torch.device) -> "Tally":
        """The tally of images before their first sample."""
        shapes = ((images, classes), (images, betas, classes), (images, betas, classes))
        return cls(*(torch.zeros(shape, dtype=torch.int64, device=device) for shape in shapes))

    def add(self, positions: Tensor, more: "Tally") -> None:
        """Add each row of another tally to the image at its position, in place."""
        for totals, values in zip(self, more, strict=True):
            totals.index_add_(0, positions, values)

    def plus(self, more: "Tally") -> "Tally":
        """The tally of the same images with more samples of each."""
        return Tally(*(totals + values for totals, values in zip(self, more, strict=True)))

    def emptied(self) -> "Tally":
        """The tally of the same images before their first sample."""
        return Tally(*map(torch.zeros_like, self))

    def only(self, chosen: Tensor) -> "Tally":
        """The tally of the chosen images (a mask); zeros for the others."""
        masks = (chosen.view(-1, *[1] * (totals.ndim - 1)) for totals in self)
        return Tally(*(torch.where(mask, t, 0) for mask, t in zip(masks, self, strict=True)))

    def at(self, column: int) -> "Tally":
        """The tally with the soft moments at one β only: (images, classes)."""
        return Tally(self.votes, self.first[:, column], self.second[:, column])
