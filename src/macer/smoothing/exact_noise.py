"""Noise for which the theorem holds in floating point.

In floating point, x + η keeps low-order bits of x: a classifier that looks at them is certified
far beyond its true radius. Here the noise is an integer, D = round(255η) for η ~ N(0, σ²). It is
added to the 8-bit image as an integer, and the network sees one float for each sum. The network is
then a function of round(255(x + η)), to which the Gaussian theorem applies as it stands.

P(D ≤ i) = P(255η < i + ½) = Φ((2i + 1) / 510σ)

A draw is a uniform integer U of 62 bits, compared with T_i = ⌊2⁶²Φ((2i + 1) / 510σ)⌋:
U < T_i means D ≤ i, U > T_i means D > i, and U = T_i decides nothing: the sample does not count.
Only integers are compared: every device draws the same noise.
"""

from dataclasses import dataclass
from functools import lru_cache

import mpmath
import numpy as np
from numpy.typing import NDArray

from macer.system.errors import Mistake

BITS = 62
GUIDE_BITS = 16

# Up to this σ there are fewer than 2¹⁴ thresholds: ranks fit an int16, a search takes 14 steps.
_LARGEST_SIGMA = 3.5


@dataclass(frozen=True)
class Levels:
    """The thresholds of one σ and the tables made from them."""

    sigma: float
    lowest: int  # D − lowest is the number of thresholds below a draw
    thresholds: NDArray[np.int64]  # T_lowest, T_lowest+1, …, ascending
    guide: NDArray[np.int16]  # number of thresholds below a draw, by its first 16 bits; −1: varies
    floats: NDArray[np.float32]  # what the network sees, by pixel + D − lowest

    def ranks(self, raw: NDArray[np.uint64]) -> tuple[NDArray[np.int16], NDArray[np.intp]]:
        """D − lowest for each 64-bit draw, and the positions of undecided draws.

        U is the upper 62 bits of a draw. The first 16 decide most draws; only the others need a
        search among the thresholds.
        """
        cells = (raw >> np.uint64(64 - GUIDE_BITS)).astype(np.intp)
        ranks = np.take(self.guide, cells)
        flat = ranks.reshape(-1)
        varying = np.flatnonzero(flat < 0)
        u = (raw.reshape(-1)[varying] >> np.uint64(64 - BITS)).astype(np.int64)
        below = np.searchsorted(self.thresholds, u, side="left")
        flat[varying] = below
        at_most = np.minimum(below, len(self.thresholds) - 1)
        return ranks, varying[self.thresholds[at_most] == u]


@lru_cache(maxsize=8)
def levels(sigma: float) -> Levels:
    """The thresholds and tables of a σ."""
    if not 0 < sigma <= _LARGEST_SIGMA:
        raise Mistake(
            f"sigma must be in (0, {_LARGEST_SIGMA:g}] for exact noise, got {sigma}; "
            "use ordinary noise, exact=False"
        )
    lowest, thresholds = _thresholds(sigma)
    edges = np.arange(2**GUIDE_BITS + 1, dtype=np.int64) << (BITS - GUIDE_BITS)
    # A cell [a, b) that holds a threshold T, a ≤ T < b, leaves open if U is below, at or above it.
    below = np.searchsorted(thresholds, edges, side="left")
    guide = np.where(below[1:] > below[:-1], -1, below[:-1])
    highest = lowest + len(thresholds)
    sums = np.arange(lowest, 255 + highest + 1)
    return Levels(
        sigma=sigma,
        lowest=lowest,
        thresholds=thresholds,
        guide=guide.astype(np.int16),
        floats=(sums / 255).astype(np.float32),
    )


def _thresholds(sigma: float) -> tuple[int, NDArray[np.int64]]:
    """(i₀, [T_i₀, T_i₀+1, …]): from the last i with T_i = 0 to the first with T_i = 2⁶² − 1."""
    i = 0
    while threshold(i, sigma) < 2**BITS - 1:
        i += 1
    highest = i
    lowest = -1
    while threshold(lowest, sigma) > 0:
        lowest -= 1
    values = [threshold(i, sigma) for i in range(lowest, highest + 1)]
    return lowest, np.array(values, dtype=np.int64)


@lru_cache(maxsize=65536)
def threshold(i: int, sigma: float) -> int:
    """T_i = ⌊2⁶²Φ((2i + 1) / 510σ)⌋, computed with enough digits for the floor to be certain."""
    with mpmath.workdps(50):
        exact = mpmath.ldexp(mpmath.ncdf(mpmath.mpf(2 * i + 1) / (510 * mpmath.mpf(sigma))), BITS)
        floor: int = int(mpmath.floor(exact))
        distance = min(exact - floor, floor + 1 - exact)
        # ncdf is good to about 50 digits, 2⁶² takes 19: its error cannot cross an integer.
        # Next to 0 it cannot either, since nothing is below 0.
        certain = distance > mpmath.mpf(10) ** -25 or exact < 0.5 or exact > 2**BITS - 1
        assert certain, (i, sigma)
    return min(floor, int(2**BITS) - 1)
