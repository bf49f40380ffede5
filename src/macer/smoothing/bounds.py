"""Confidence bounds of the classes' probabilities from tallies, and the table that names them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from macer.smoothing.confidence import (
    Floats,
    Samples,
    bernstein_lower,
    clopper_pearson_lower,
    clopper_pearson_upper,
    hoeffding_lower,
)
from macer.smoothing.confidence_sequence import confidence_sequence_lower
from macer.smoothing.tally import SOFT_UNIT, Tally
from macer.system.errors import Mistake


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
_FIXED = {name: bound for name, bound in BOUNDS.items() if not bound.anytime}
READINGS = tuple(name for name, bound in _FIXED.items() if not bound.soft)
SOFT_READINGS = tuple(name for name, bound in _FIXED.items() if bound.soft)


def bound_named(name: str) -> Bound:
    """The bound of that name."""
    if name not in BOUNDS:
        raise Mistake(f"unknown bound {name!r}; choose from {', '.join(BOUNDS)}")
    return BOUNDS[name]


def check_reading(name: str) -> None:
    """Refuse what is no bound of hard votes by n samples."""
    if name not in READINGS:
        raise Mistake(f"bound must be one of {', '.join(READINGS)}, got {name!r}")
