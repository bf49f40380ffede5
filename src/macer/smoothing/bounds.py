"""Confidence bounds of the classes' probabilities, and the table that names them.

Bounds are computed in float64 and rounded to the safe side: a lower bound is never above its exact
value, an upper bound never below it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv
from torch import Tensor

from macer.errors import Mistake
from macer.smoothing.confidence_sequence import confidence_sequence_lower
from macer.smoothing.tally import SOFT_UNIT, Tally

Floats = NDArray[np.float64]
Samples = int | NDArray[np.int64]  # a number of samples for all images, or one for each

# betaincinv, sqrt and ndtri are good to a few units in the last place; this is more than those.
ULPS = 2.0**-49
DOWN = 1.0 - ULPS


def clopper_pearson_lower(count: ArrayLike, n: Samples, alpha: float) -> Floats:
    """Lower bound of p at confidence 1 − α, one-sided, from `count` successes in n trials.

    p̲ = the α-quantile of Beta(count, n − count + 1);  0 for count = 0   [Clopper & Pearson 1934]
    """
    count = np.asarray(count, dtype=np.float64)
    shape = (np.maximum(count, 1.0), n - count + 1.0)
    p: Floats = betaincinv(*shape, alpha) * DOWN
    # betaincinv now and then stops some thousand units above the quantile: p is lowered, in steps
    # that double, until it passes the test that defines it, P(X ≥ count | p) ≤ α.
    step = 2.0**-41
    while (above := betainc(*shape, p) > alpha).any():
        p = np.where(above, p * (1.0 - step), p)
        step = min(2.0 * step, 0.5)
    return np.where(count > 0, p, 0.0)


def clopper_pearson_upper(count: ArrayLike, n: int, alpha: float) -> Floats:
    """Upper bound of p at confidence 1 − α, one-sided, from `count` successes in n trials.

    p̄ = 1 − the lower bound of the other outcome's probability;  1 for count = n
    """
    others = clopper_pearson_lower(n - np.asarray(count, dtype=np.float64), n, alpha)
    upper: Floats = np.minimum(np.nextafter(1.0 - others, 2.0), 1.0)
    return upper


def hoeffding_lower(total: ArrayLike, n: Samples, alpha: float) -> Floats:
    """Lower bound of E X at confidence 1 − α from the sum of n samples of X in [0, 1].

    z̲ = X̄ − √(−log α / 2n)                                    [Zhai+20, Appendix A, Lemma 2]
    """
    bound: Floats = np.asarray(total, dtype=np.float64) / n - np.sqrt(-np.log(alpha) / (2 * n))
    lower: Floats = np.maximum(bound, 0.0) * DOWN
    return lower


def bernstein_lower(total: ArrayLike, squares: ArrayLike, n: Samples, alpha: float) -> Floats:
    """Empirical Bernstein lower bound of E X from Σ Xⱼ and Σ Xⱼ², X in [0, 1].

    S² = (Σ Xⱼ² − (Σ Xⱼ)²/n) / (n − 1)
    z̲ = X̄ − √(2 S² log(2/α) / n) − 7 log(2/α) / 3(n − 1)         [Zhai+20, Appendix A, Thm. 3]
    """
    total = np.asarray(total, dtype=np.float64)
    squares = np.asarray(squares, dtype=np.float64)
    # Σ X² and (Σ X)²/n cancel; each is good to an ulp, so their difference may be 2 ulps short.
    variance = np.maximum(squares - total**2 / n + squares * 2.0**-50, 0.0) / (n - 1)
    log_term = np.log(2 / alpha)
    bound = total / n - np.sqrt(2 * variance * log_term / n) - 7 * log_term / (3 * (n - 1))
    lower: Floats = np.maximum(bound, 0.0) * DOWN
    return lower


def _clopper_pearson(tally: Tally, selected: Tensor, n: Samples, alpha: float) -> Floats:
    return clopper_pearson_lower(_of_selected(tally.votes, selected), n, alpha)


# The share w of α that is for the other classes' upper bounds; the rest is for p̲_A. It was fixed
# before anything was sampled: between .01 and .2 the radii hardly depend on it.
RIVALS_SHARE = 0.1


def _own_share(tally: Tally, selected: Tensor, n: Samples, alpha: float) -> Floats:
    return _clopper_pearson(tally, selected, n, (1 - RIVALS_SHARE) * alpha)


def _runner_up(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    """p̄_B: the largest upper bound of any class but ĉ_A, all of them at once at level wα.

    p̄_c = UpperConfBound(counts[c] + nobody, n, 1 − wα/(K − 1)), c ≠ ĉ_A    [Jia+20, SimuEM]
    p̄_B = max_c p̄_c

    ĉ_A was selected on other samples; given those, it is a fixed class. Then p̲_A > p_A has
    probability at most (1 − w)α and each p̄_c < p_c at most wα/(K − 1), for whatever the network
    sees of the noise, exact or ordinary. Together that is at most α by the union bound, however
    the votes depend on one another. For p̄_B alone less would do: it is at least p̄_c of the class c
    with the largest p_c, a fixed one, so that the level is at most (1 − w)α + wα/(K − 1).

    A sample that voted for nobody counts for every class: its noise may have been undecided, and
    nobody knows whose vote it would have been. docs/guide/bounds.md has the whole argument.

    Unlike the paper: p̲_A has most of α, not a K-th of it, since its bound matters more.
    """
    votes, rivals = tally.votes, max(tally.votes.shape[1] - 1, 1)
    nobody = n - votes.sum(dim=1)
    most = votes.scatter(1, selected[:, None], 0).max(dim=1).values + nobody
    # The bound grows with the count, so the largest one is that of the largest count.
    counts = most.numpy().astype(np.float64)
    return clopper_pearson_upper(counts, n, RIVALS_SHARE * alpha / rivals)


def _hoeffding(tally: Tally, selected: Tensor, n: Samples, alpha: float) -> Floats:
    return hoeffding_lower(_of_selected(tally.first, selected) * SOFT_UNIT, n, alpha)


def _bernstein(tally: Tally, selected: Tensor, n: Samples, alpha: float) -> Floats:
    total = _of_selected(tally.first, selected) * SOFT_UNIT
    squares = _of_selected(tally.second, selected) * SOFT_UNIT**2
    return bernstein_lower(total, squares, n, alpha)


def _of_selected(totals: Tensor, selected: Tensor) -> Floats:
    return totals.gather(1, selected[:, None]).squeeze(1).numpy().astype(np.float64)


def _anytime(tally: Tally, selected: Tensor, n: Samples, alpha: float) -> Floats:
    return confidence_sequence_lower(_of_selected(tally.votes, selected), n, alpha)


class Bound(NamedTuple):
    """How p_A and p_B are bounded, and from which samples.

    `lower(tally, ĉ_A, n, α)` is p̲_A of each image and `upper(tally, ĉ_A, n, α)` an upper bound of
    every other class. With probability 1 − α both hold. Without `upper`, p̄_B is 1 − p̲_A.
    """

    lower: Callable[[Tally, Tensor, Samples, float], Floats]
    soft: bool  # of the classifier smoothed by softmax outputs; else by votes
    least: int = 1  # `lower` is defined from this n on
    upper: Callable[[Tally, Tensor, int, float], Floats] | None = None
    anytime: bool = False  # it holds after every sample at once: images may have any n of their own

    def probabilities(
        self, tally: Tally, selected: Tensor, n: int, alpha: float, drawn: Tensor | None = None
    ) -> tuple[Floats, Floats]:
        """(p̲_A, p̄_B) of each image; p̄_B ≤ 1 − p̲_A, since probabilities add up to 1.

        Args:
            drawn: the samples of each image, which count for a bound that holds at any time.
        """
        samples: Samples = n if drawn is None or not self.anytime else drawn.numpy()
        p_a = self.lower(tally, selected, samples, alpha)
        p_b = 1.0 - p_a  # exact for p̲_A ≥ ½; below that it certifies nothing
        if self.upper is not None:
            p_b = np.minimum(self.upper(tally, selected, n, alpha), p_b)
        return p_a, p_b

    def totals(self, tally: Tally) -> Tensor:
        """What the bound counts, (images, classes): Σz for a soft bound, else votes."""
        return tally.first if self.soft else tally.votes

    def largest(self, n: int, alpha: float) -> float:
        """p̲_A where each of the n samples is entirely for the class; 0 for too few."""
        if n < self.least:
            return 0.0
        one = int(1 / SOFT_UNIT) if self.soft else 1
        tally = Tally(*(torch.tensor([[n * value]]) for value in (1, one, one * one)))
        return float(self.lower(tally, torch.tensor([0]), n, alpha)[0])


# Whether a bound is soft and how many samples it needs is read here, never from its name.
BOUNDS = {
    "clopper-pearson": Bound(_clopper_pearson, soft=False),
    "runner-up": Bound(_own_share, soft=False, upper=_runner_up),
    "anytime": Bound(_anytime, soft=False, anytime=True),
    "hoeffding": Bound(_hoeffding, soft=True),
    "bernstein": Bound(_bernstein, soft=True, least=2),
}

# The bounds of hard votes that read the same counts: n samples, however they vote. And those of
# soft outputs, from their moments at one β.
READINGS = ("clopper-pearson", "runner-up")
SOFT_READINGS = ("hoeffding", "bernstein")


def bound_named(name: str) -> Bound:
    """The bound of that name."""
    if name not in BOUNDS:
        raise Mistake(f"unknown bound {name!r}; choose from {', '.join(BOUNDS)}")
    return BOUNDS[name]


def check_reading(name: str) -> None:
    """Refuse what is no bound of hard votes by n samples."""
    if name not in READINGS:
        raise Mistake(f"bound must be one of {', '.join(READINGS)}, got {name!r}")
