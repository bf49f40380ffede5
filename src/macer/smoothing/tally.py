"""The tally: what the samples of each image add up to."""

from typing import NamedTuple

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
