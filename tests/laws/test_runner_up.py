"""The level of the runner-up bound: p̲_A and p̄_B are both right with probability 1 − α, for every p.

For few classes the probability that either is wrong is summed over all outcomes of n samples, at
the p where it is largest: just below a value of p̲_A, just above a value of p̄_B. For many classes it
is sampled there.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import gammaln, xlogy
from scipy.stats import binom

from macer.smoothing.bounds import BOUNDS, RIVALS_SHARE
from macer.smoothing.confidence import clopper_pearson_lower, clopper_pearson_upper
from macer.smoothing.tally import Tally

RUNNER_UP = BOUNDS["runner-up"]
CHANCE = 1e-6  # that a right bound fails a check by sampling


def bounds_of(counts, n, alpha, bound=RUNNER_UP):
    """(p̲_A, p̄_B) of counts (outcomes, classes), the first class selected."""
    votes = torch.as_tensor(np.asarray(counts, dtype=np.int64))
    selected = torch.zeros(len(votes), dtype=torch.int64)
    return bound.probabilities(Tally(votes, votes, votes), selected, n, alpha)


def all_counts(n, cells):
    """Every way in which n samples fall into cells, (outcomes, cells)."""
    if cells == 1:
        return np.array([[n]])
    rows = [np.insert(all_counts(n - k, cells - 1), 0, k, axis=1) for k in range(n + 1)]
    return np.concatenate(rows)


def chances(counts, p):
    """The probability of each outcome under each p (points, cells): (points, outcomes)."""
    ways = gammaln(counts.sum(axis=1) + 1) - gammaln(counts + 1).sum(axis=1)
    logs = xlogy(counts[None, :, :], p[:, None, :]).sum(axis=2)
    return np.exp(ways + logs)


def wrong(p_a, p_b, p):
    """Whether either bound is wrong: p of the classes (…, classes), the first one selected."""
    return (p_a > p[..., 0]) | (p_b < p[..., 1:].max(axis=-1))


def edges(n, alpha, rivals):
    """The probabilities of a class at which one of its two bounds has just become wrong."""
    count = np.arange(n + 1)
    lower = clopper_pearson_lower(count, n, (1 - RIVALS_SHARE) * alpha)
    upper = clopper_pearson_upper(count, n, RIVALS_SHARE * alpha / rivals)
    below, above = np.nextafter(lower[lower > 0], 0), np.nextafter(upper[upper < 1], 1)
    return below, above


def worst_points(n, alpha, classes, nobody):
    """Points of the simplex (points, cells): edges of the first class with edges of its rivals."""
    rest, share = classes - 2, np.linspace(0, 1, 5)
    below, above = edges(n, alpha, classes - 1)
    points = []
    for p_a, p_b in product([*below, *np.linspace(0, 1, 9)], [*above, *np.linspace(0, 1, 9)]):
        left = 1 - p_a - p_b
        for part in share if rest and nobody else [1.0]:
            third = [
                min(p_b, part * left / max(rest, 1))
            ] * rest  # no third class exceeds the second
            others = left - sum(third)
            if left >= 0 and (nobody or abs(others) < 1e-12):
                points.append([p_a, p_b, *third, *([others] if nobody else [])])
    return np.maximum(np.array(points), 0.0)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
@pytest.mark.parametrize(("classes", "nobody", "n"), [(2, True, 40), (3, False, 40), (3, True, 14)])
def test_both_bounds_hold_with_probability_1_minus_alpha_summed_exactly(classes, nobody, n, alpha):
    counts = all_counts(n, classes + nobody)
    p_a, p_b = bounds_of(counts[:, :classes], n, alpha)
    p = worst_points(n, alpha, classes, nobody)
    is_wrong = wrong(p_a[None], p_b[None], p[:, None, :classes])
    rate = (chances(counts, p) * is_wrong).sum(axis=1)
    assert len(p) > 100 and rate.max() <= alpha * (1 + 1e-9)
    assert rate.max() > 0.6 * alpha  # the points are bad ones


@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_they_hold_too_where_every_vote_for_nobody_would_have_been_a_rivals(alpha):
    """Samples whose noise was undecided are among the rival's, and nobody knows it."""
    n = 40
    counts, points = all_counts(n, 3), worst_points(n, alpha, 3, nobody=False)
    p_a, p_b = bounds_of(counts[:, :2], n, alpha)  # the third cell votes for nobody
    truth = np.stack([points[:, 0], points[:, 1] + points[:, 2]], axis=1)
    rate = (chances(counts, points) * wrong(p_a[None], p_b[None], truth[:, None])).sum(axis=1)
    assert 0 < rate.max() <= alpha * (1 + 1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_two_classes_have_cohens_bound_at_the_rest_of_alpha(alpha):
    n = 200
    counts = all_counts(n, 2)
    p_a, p_b = bounds_of(counts, n, alpha)
    cohens = bounds_of(counts, n, (1 - RIVALS_SHARE) * alpha, BOUNDS["clopper-pearson"])
    assert p_a.tobytes() == cohens[0].tobytes() and p_b.tobytes() == cohens[1].tobytes()


def many_classes(classes, n, alpha):
    """Points where all rivals are at an edge of theirs, some of them, or none."""
    below, above = edges(n, alpha, classes - 1)
    yield np.full(classes, 1 / classes)
    for edge in above[[0, 1, 3]]:
        few = min(int(0.4 / edge), classes - 1)
        rivals = np.r_[np.full(few, edge), np.zeros(classes - 1 - few)]
        left = 1 - rivals.sum()
        p_a = below[below < left].max()
        rivals[-1] += left - p_a if few < classes - 1 else 0.0
        yield np.r_[1 - rivals.sum(), rivals]
    p_b = above[above < 0.5].max()
    yield np.r_[1 - p_b, p_b, np.zeros(classes - 2)]


@pytest.mark.medium
@pytest.mark.parametrize(("classes", "n", "draws"), [(10, 1000, 40_000), (1000, 2000, 2000)])
@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_with_many_classes_both_bounds_hold_as_often_as_they_must(classes, n, draws, alpha):
    random, seen = np.random.default_rng(classes), 0
    for p in many_classes(classes, n, alpha):
        p_a, p_b = bounds_of(random.multinomial(n, p, size=draws), n, alpha)
        false = int(wrong(p_a, p_b, p).sum())
        assert false <= binom.ppf(1 - CHANCE, draws, alpha)
        seen += false
    assert seen > 0
