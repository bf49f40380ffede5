"""One radius, tested as the samples come in: is this image robust at R, yes or no?

The selected class has probability p_A under noise; robust at R means p_A > p₀ = Φ(R/σ). A gambler
bets against H₀: p_A ≤ p₀, sample by sample. After k votes for the class in n samples her wealth is

W(k, n) = Σⱼ wⱼ (pⱼ/p₀)ᵏ ((1 − pⱼ)/(1 − p₀))ⁿ⁻ᵏ,   pⱼ > p₀, Σⱼ wⱼ = 1, W(0, 0) = 1

Under H₀ one more sample multiplies term j, in expectation, by

p_A pⱼ/p₀ + (1 − p_A)(1 − pⱼ)/(1 − p₀) = 1 − (p₀ − p_A)(pⱼ − p₀)/(p₀(1 − p₀)) ≤ 1

so that W is a nonnegative supermartingale, and P(W ever reaches 1/α) ≤ α [Ville+39], however
often one looks and whatever else made one stop. W needs the counts only: anyone can recompute it.
"""

import bisect
import math
from enum import IntEnum
from functools import lru_cache

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, xlogy

from macer.smoothing.confidence import Floats, clopper_pearson_lower, radius_lower
from macer.smoothing.copies import CHUNK
from macer.system.errors import Mistake

# How far the nearest alternative is from p₀, as an angle: 100,000 samples can tell them apart.
_NEAREST = 0.008

# The wealth's share of α. The rest is for Clopper–Pearson's bound after the last sample, which is
# stronger there: on CIFAR-10, at R = 3σ, wealth alone loses .3 points of certified accuracy, both
# together lose .1.
_SHARE = 0.5

# The largest probability of giving up an image that the last look would find robust with
# probability ½ or more. Giving up costs power, never validity.
_GIVE_UP = 0.1

# Ratios, logarithms, products and sums are each good to an ulp or two, 2⁻⁵²; this exceeds them.
_ERROR = 2.0**-50


class Decision(IntEnum):
    """What a look at the counts decides."""

    OPEN = 0
    ROBUST = 1
    GIVEN_UP = 2


def p0_at(radius: float, sigma: float) -> float:
    """p₀ = Φ(R/σ), rounded up: the probability that p_A must exceed for R to be certified."""
    if not (sigma > 0 and math.isfinite(sigma)):
        raise Mistake(f"sigma must be > 0, got {sigma}")
    if not (radius >= 0 and math.isfinite(radius)):
        raise Mistake(f"radius must be a number ≥ 0, got {radius}")
    with mpmath.workdps(50):
        exact = mpmath.ncdf(mpmath.mpf(radius) / mpmath.mpf(sigma))
        p0 = float(exact)
        # Where R/σ is tiny, Φ may equal p0 to 50 digits and still be above it. At R = 0 it is ½.
        return p0 if p0 > exact or radius == 0 else math.nextafter(p0, 1.0)


def reaches(radius: float, *, sigma: float, alpha: float, n_max: int) -> bool:
    """Whether a radius could be certified if all n_max samples voted for one class."""
    p_a = float(_most_certain(alpha, n_max))
    return p0_at(radius, sigma) < p_a


def _most_certain(alpha: float, n_max: int) -> Floats:
    return clopper_pearson_lower(n_max, n_max, alpha * (1 - _SHARE))


def check_radius(radius: float, *, sigma: float, alpha: float, n_max: int) -> None:
    """Refuse a radius that could not be certified even if all n_max samples voted for it."""
    if reaches(radius, sigma=sigma, alpha=alpha, n_max=n_max):
        return
    largest = float(radius_lower(np.atleast_1d(_most_certain(alpha, n_max)), sigma)[0])
    raise Mistake(
        f"radius must be below {math.floor(largest * 1e4) / 1e4:g}, the most that {n_max} samples "
        f"can certify at sigma {sigma:g} and alpha {alpha:g}, got {radius:g}; raise n"
    )


def looks(n_max: int) -> list[int]:
    """The sample sizes to look at: first chunk by chunk, later in steps of an eighth of n.

    They depend on n_max alone: results do not depend on how samples are packed into batches.
    """
    if n_max < 1:
        raise Mistake(f"n_max must be at least 1, got {n_max}")
    sizes: list[int] = []
    while (n := sizes[-1] if sizes else 0) < n_max:
        sizes.append(next_look(n, n_max))
    return sizes


def next_look(n: int, n_max: int, *, chunks: int = 1) -> int:
    """The sample size to look at after n: some chunks more, or an eighth of n if that is more."""
    step = CHUNK * chunks
    return min(n + step * max(1, n // (8 * step)), n_max)


def alternatives(p0: float) -> tuple[Floats, Floats]:
    """(pⱼ, wⱼ): probabilities above p₀ to bet on, each twice as far off and half as heavy; then 1.

    pⱼ = sin²(arcsin √p₀ + 2ʲh), j = 0, 1, … while the angle is below π/2;   h = _NEAREST
    wⱼ = 2⁻ʲ⁻¹;   p = 1 takes the rest

    On the scale of the angle, a sample is worth the same everywhere: it takes about 1/d² samples
    to tell two probabilities at distance d apart. The near ones are heavy because they decide the
    images that need most samples; a far one makes up for a small weight within a few samples.
    """
    if not 0 < p0 < 1:
        raise Mistake(f"p0 must be between 0 and 1, got {p0}")
    to_one = math.asin(math.sqrt(1.0 - p0))  # π/2 − φ₀, without the cancellation near 1
    distances: list[float] = []
    while _NEAREST * 2 ** len(distances) < to_one:
        distances.append(_NEAREST * 2 ** len(distances))
    p = np.array([1.0 - math.sin(to_one - d) ** 2 for d in distances] + [1.0])
    weights = 0.5 ** np.arange(1.0, len(p) + 1)
    weights[-1] *= 2
    return p, weights


def log_wealth(count: ArrayLike, n: ArrayLike, p0: float) -> Floats:
    """log W(count, n), never above its exact value.

    Args:
        count: votes for the selected class, any shape that broadcasts with n.
    """
    p, weights = alternatives(p0)
    votes = np.asarray(count, dtype=np.float64)[..., None]
    others = np.asarray(n, dtype=np.float64)[..., None] - votes
    gains = votes * np.log(p / p0)
    losses = xlogy(others, (1.0 - p) / (1.0 - p0))  # 0 for no others, also at p = 1
    error = _ERROR * (2 * (votes + others) + gains - losses + 8)
    lower: Floats = logsumexp(np.log(weights) + gains + losses - error, axis=-1)
    return lower


def decisions(
    count: ArrayLike, n: ArrayLike, *, p0: float, alpha: float, n_max: int
) -> NDArray[np.int8]:
    """The Decision on each image at a look, from `count` votes in n of at most n_max samples.

    ROBUST    if W ≥ 2/α, or if Clopper–Pearson's bound at α/2 will exceed p₀ after n_max samples
              whatever the rest of them vote
    GIVEN_UP  if it will not, whatever they vote; or if wealth that is bet on fewer votes than that
              bound needs says so at level _GIVE_UP
    OPEN      otherwise; never for n = n_max

    An image with p_A ≤ p₀ is found ROBUST, at whatever look, with probability at most α. What
    CERTIFY certifies with the same n_max samples and α/2 is found ROBUST, unless given up before.
    """
    count, n = np.asarray(count), np.asarray(n)
    _check_counts(count, n, n_max)
    needed = _needed(p0, alpha * (1 - _SHARE), n_max)
    robust = (count >= needed) | (log_wealth(count, n, p0) >= -math.log(alpha * _SHARE))
    p1 = min(needed, n_max) / (n_max + 1)
    hopeless = log_wealth(n - count, n, 1.0 - p1) >= -math.log(_GIVE_UP)
    hopeless |= count + n_max - n < needed
    decision = np.select([robust, hopeless], [Decision.ROBUST, Decision.GIVEN_UP], Decision.OPEN)
    return decision.astype(np.int8)


def _check_counts(count: NDArray, n: NDArray, n_max: int) -> None:
    bad = (count < 0) | (count > n) | (n > n_max)
    if bad.any():
        k, n = (np.broadcast_to(a, bad.shape)[bad][0] for a in (count, n))
        raise Mistake(f"count must be from 0 to n and n at most {n_max}, got {k} of {n}")


@lru_cache(maxsize=64)
def _needed(p0: float, alpha: float, n: int) -> int:
    """The fewest votes in n samples whose Clopper–Pearson bound exceeds p₀; n + 1 if none does."""

    def bound(count: int) -> float:
        return float(clopper_pearson_lower(count, n, alpha))

    return bisect.bisect_right(range(n + 1), p0, key=bound)
