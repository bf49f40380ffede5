"""Which radii are within reach of how many samples, and how soon one radius is decided."""

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr
from scipy.stats import binom

from macer.recipes import MOST_VOTES
from macer.smoothing.bounds import Bound, bound_named
from macer.smoothing.confidence import Floats, radius_lower
from macer.smoothing.sequential import Decision, decisions, looks, p0_at, reaches
from macer.smoothing.tally import MOST_SOFT_SAMPLES
from macer.system.errors import Mistake

USUAL_BOUND = "clopper-pearson"  # the bound of certificates unless another is named
LEAST_SHARE = 1e-15  # of all images: fewer are left out when the sequential test is followed


def largest_radius(n: int, *, sigma: float, alpha: float, bound: str = USUAL_BOUND) -> float:
    """The largest radius that n samples give: an image has it if all of them are for one class.

    σΦ⁻¹(p̲_A);  p̲_A = α^(1/n) for Clopper–Pearson
    """
    p_a = bound_named(bound).largest(n, alpha)
    return float(radius_lower(np.array([p_a]), sigma)[0])


def least_n(radius: float, *, sigma: float, alpha: float, bound: str = USUAL_BOUND) -> int | None:
    """The fewest samples that can certify a radius; None if no n that macer allows can."""

    def enough(n: int) -> bool:
        radius_of_n = largest_radius(n, sigma=sigma, alpha=alpha, bound=bound)
        return radius_of_n >= radius and radius_of_n > 0

    return _fewest(enough, _most_samples(bound_named(bound)))


def least_n_in_steps(radius: float, *, sigma: float, alpha: float) -> int | None:
    """The fewest samples at most that `certify --radius` needs to certify it; None if none do."""

    def enough(n: int) -> bool:
        return reaches(radius, sigma=sigma, alpha=alpha, n_max=n)

    return _fewest(enough, MOST_VOTES)


def least_sigma(radius: float, *, n: int, alpha: float, bound: str = USUAL_BOUND) -> float | None:
    """The smallest σ, up to four digits, at which n samples can certify a radius; None if none do.

    The largest radius is proportional to σ.
    """
    unit = largest_radius(n, sigma=1.0, alpha=alpha, bound=bound)
    if unit <= 0:
        return None
    sigma = radius / unit
    digit = 10.0 ** (math.floor(math.log10(sigma)) - 3)
    steps = math.ceil(sigma / digit)
    while largest_radius(n, sigma=_written(steps * digit), alpha=alpha, bound=bound) < radius:
        steps += 1
    return _written(steps * digit)


def _written(sigma: float) -> float:
    """The number that a reader of four digits types."""
    return float(f"{sigma:.4g}")


def _most_samples(bound: Bound) -> int:
    return MOST_SOFT_SAMPLES if bound.soft else MOST_VOTES


def _fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """The least n from 1 to `most` that is enough; more is never worse."""
    n = 1 + bisect.bisect_left(range(1, most + 1), True, key=enough)
    return n if n <= most else None


def check_reach(
    radius: float, *, n: int, sigma: float, alpha: float, bound: str = USUAL_BOUND
) -> None:
    """Refuse a radius that n samples can never certify, and say which n or which σ would do."""
    if not (radius > 0 and math.isfinite(radius)):
        raise Mistake(f"radius must be a number > 0, got {radius:g}")
    largest = largest_radius(n, sigma=sigma, alpha=alpha, bound=bound)
    if largest >= radius:
        return
    needed = least_n(radius, sigma=sigma, alpha=alpha, bound=bound)
    wider = least_sigma(radius, n=n, alpha=alpha, bound=bound)
    remedies = [f"n to {needed:,}"] if needed else []
    remedies += [f"sigma to {wider:g}"] if wider else []
    raise Mistake(
        f"radius must be at most {math.floor(largest * 1e4) / 1e4:g}, which {n:,} votes for one "
        f"class certify at sigma {sigma:g} and alpha {alpha:g}, got {radius:g}; "
        f"raise {' or '.join(remedies)}"
    )


@dataclass(frozen=True)
class Course:
    """What the sequential test does with images of one p_A: how many it still has at each look."""

    p_a: float
    steps: tuple[int, ...]  # samples drawn before each look, of an image that is still open
    shares: tuple[float, ...]  # of the images for which they are drawn
    robust: float  # share of the images that are found robust

    @property
    def samples(self) -> float:
        """Samples of an image, on average; without those that select its class."""
        return math.fsum(size * share for size, share in zip(self.steps, self.shares, strict=True))


def course(p_a: float, *, radius: float, sigma: float, alpha: float, n: int) -> Course:
    """The course of `certify --radius`, computed exactly from the distribution of the votes.

    At each look the number of votes among the images still open is convolved with
    Binomial(samples since the last look, p_A); `decisions` closes the decided ones.
    """
    p0 = p0_at(radius, sigma)
    first, still_open = 0, np.ones(1)  # P(still open, first + i votes)
    before, robust = 0, 0.0
    steps: list[int] = []
    shares: list[float] = []
    for size in looks(n):
        steps.append(size - before)
        shares.append(float(still_open.sum()))
        least, more = _binomial(size - before, p_a)
        first, still_open = first + least, np.maximum(fftconvolve(still_open, more), 0.0)
        decision = decisions(first + np.arange(len(still_open)), size, p0=p0, alpha=alpha, n_max=n)
        robust += float(still_open[decision == Decision.ROBUST].sum())
        kept = np.flatnonzero((decision == Decision.OPEN) & (still_open > LEAST_SHARE))
        if not len(kept):
            break
        still_open = np.where(decision == Decision.OPEN, still_open, 0.0)[kept[0] : kept[-1] + 1]
        first, before = first + int(kept[0]), size
    return Course(p_a, tuple(steps), tuple(shares), robust)


def _binomial(n: int, p: float) -> tuple[int, Floats]:
    """The least number of successes that matters, and the probabilities from it on."""
    low, high = (int(binom.ppf(q, n, p)) for q in (LEAST_SHARE, 1 - LEAST_SHARE))
    return max(low, 0), binom.pmf(np.arange(max(low, 0), high + 1), n, p)


def p_a_at(radius: float, sigma: float) -> float:
    """The probability of the top class of an image whose radius is just this: Φ(R/σ)."""
    return float(ndtr(radius / sigma))
