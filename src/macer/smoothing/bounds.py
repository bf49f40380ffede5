"""Confidence bounds of the selected class's probability, and the table that names them.

Bounds are computed in float64 and rounded down, so that none of them is ever above its exact value.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv
from torch import Tensor

from macer.errors import Mistake
from macer.smoothing.tally import SOFT_UNIT, Tally

Floats = NDArray[np.float64]

# betaincinv, sqrt and ndtri are good to a few units in the last place; this is more than those.
DOWN = 1.0 - 2.0**-49


def clopper_pearson_lower(count: ArrayLike, n: int, alpha: float) -> Floats:
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


def hoeffding_lower(total: ArrayLike, n: int, alpha: float) -> Floats:
    """Lower bound of E X at confidence 1 − α from the sum of n samples of X in [0, 1].

    z̲ = X̄ − √(−log α / 2n)                                    [Zhai+20, Appendix A, Lemma 2]
    """
    bound: Floats = np.asarray(total, dtype=np.float64) / n - np.sqrt(-np.log(alpha) / (2 * n))
    lower: Floats = np.maximum(bound, 0.0) * DOWN
    return lower


def bernstein_lower(total: ArrayLike, squares: ArrayLike, n: int, alpha: float) -> Floats:
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


def _clopper_pearson(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    return clopper_pearson_lower(_of_selected(tally.votes, selected), n, alpha)


def _hoeffding(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    return hoeffding_lower(_of_selected(tally.first, selected) * SOFT_UNIT, n, alpha)


def _bernstein(tally: Tally, selected: Tensor, n: int, alpha: float) -> Floats:
    total = _of_selected(tally.first, selected) * SOFT_UNIT
    squares = _of_selected(tally.second, selected) * SOFT_UNIT**2
    return bernstein_lower(total, squares, n, alpha)


def _of_selected(totals: Tensor, selected: Tensor) -> Floats:
    return totals.gather(1, selected[:, None]).squeeze(1).numpy().astype(np.float64)


class Bound(NamedTuple):
    """How p_A is bounded, and from which samples.

    `lower(tally, ĉ_A, n, α)` is p̲_A of each image, at confidence 1 − α. It gets the totals of all
    classes, so that a bound may look at the other classes too.
    """

    lower: Callable[[Tally, Tensor, int, float], Floats]
    soft: bool  # of the classifier smoothed by softmax outputs; else by votes
    least: int = 1  # `lower` is defined from this n on

    def totals(self, tally: Tally) -> Tensor:
        """What the bound counts, (images, classes): Σz for a soft bound, else votes."""
        return tally.first if self.soft else tally.votes

    def largest(self, n: int, alpha: float) -> float:
        """The bound where each of the n samples is entirely for the class; 0 for too few."""
        if n < self.least:
            return 0.0
        one = int(1 / SOFT_UNIT) if self.soft else 1
        tally = Tally(*(torch.tensor([[n * value]]) for value in (1, one, one * one)))
        return float(self.lower(tally, torch.tensor([0]), n, alpha)[0])


# Whether a bound is soft and how many samples it needs is read here, never from its name.
BOUNDS = {
    "clopper-pearson": Bound(_clopper_pearson, soft=False),
    "hoeffding": Bound(_hoeffding, soft=True),
    "bernstein": Bound(_bernstein, soft=True, least=2),
}


def bound_named(name: str) -> Bound:
    """The bound of that name."""
    if name not in BOUNDS:
        raise Mistake(f"unknown bound {name!r}; choose from {', '.join(BOUNDS)}")
    return BOUNDS[name]
