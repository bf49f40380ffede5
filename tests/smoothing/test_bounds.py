"""Confidence bounds: formulas, coverage, rounding; and what the table says of each."""

from typing import get_args

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import betainc, betaincinv
from scipy.stats import beta, binom

from macer.recipes.bound_names import BoundName, FixedBoundName, VoteBoundName
from macer.smoothing.bounds import BOUNDS, READINGS, SOFT_READINGS, bound_named
from macer.smoothing.confidence import (
    bernstein_lower,
    clopper_pearson_lower,
    clopper_pearson_upper,
    hoeffding_lower,
)
from macer.smoothing.tally import SOFT_UNIT, Tally
from macer.system.errors import Mistake

mpmath.mp.dps = 40


def lower_of_votes(bound, count, n, alpha):
    """A bound of the table where each sample is entirely for the class or not at all."""
    one = round(1 / SOFT_UNIT)
    votes = torch.as_tensor(count)[:, None]
    tally = Tally(votes, votes * one, votes * one**2)
    return BOUNDS[bound].lower(tally, torch.zeros(len(votes), dtype=torch.int64), n, alpha)


def binomial_tail(count, n, p):
    """P(X ≥ count) for X ~ Binomial(n, p), summed term by term."""
    term = mpmath.binomial(n, count) * p**count * (1 - p) ** (n - count)
    total = term
    for i in range(count, n):
        term *= mpmath.mpf(n - i) / (i + 1) * p / (1 - p)
        total += term
        if term < mpmath.mpf(10) ** -38:
            break
    return total


def test_clopper_pearson_equals_scipys_quantile():
    n = 1000
    count = np.arange(1, n + 1)
    expected = beta.ppf(0.001, count, n - count + 1)
    np.testing.assert_allclose(clopper_pearson_lower(count, n, 0.001), expected, rtol=1e-12)


def test_the_upper_bound_equals_scipys_quantile():
    n = 1000
    count = np.arange(n)
    expected = beta.isf(0.001, count + 1, n - count)
    np.testing.assert_allclose(clopper_pearson_upper(count, n, 0.001), expected, rtol=1e-9)
    assert clopper_pearson_upper(n, n, 0.001) == 1.0


def test_hoeffding_equals_the_papers_formula():
    expected = 0.9 - np.sqrt(-np.log(0.001) / 2000)
    assert hoeffding_lower(900, 1000, 0.001) == pytest.approx(expected, rel=1e-12)


def test_bernstein_equals_the_papers_formula():
    x = np.random.default_rng(0).random(500)
    log_term = np.log(2 / 0.001)
    expected = x.mean() - np.sqrt(2 * x.var(ddof=1) * log_term / 500) - 7 * log_term / (3 * 499)
    assert bernstein_lower(x.sum(), (x**2).sum(), 500, 0.001) == pytest.approx(expected, 1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("n", [2, 10, 37, 100, 1000])
def test_no_bound_misses_more_often_than_alpha(bound, alpha, n):
    """P(bound(X) > p) for X ~ Binomial(n, p), summed exactly over all outcomes.

    The miss probability peaks where p is just below one of the bound's own values, so those are
    tried beside an even grid.
    """
    count = np.arange(n + 1)
    lower = lower_of_votes(bound, count, n, alpha)
    p = np.concatenate([np.linspace(0, 1, 201), np.nextafter(lower, 0), lower])
    p = p[(p >= 0) & (p <= 1)]
    misses = (lower[None, :] > p[:, None]) * binom.pmf(count[None, :], n, p[:, None])
    assert misses.sum(axis=1).max() <= alpha * (1 + 1e-9)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_clopper_pearson_is_never_above_its_exact_value(n, alpha):
    """At the exact bound P(X ≥ count) = α; at ours it is at most α, to 40 digits."""
    for count in {1, n // 2, n - n // 100, n - 1, n}:
        p = float(clopper_pearson_lower(count, n, alpha))
        assert binomial_tail(count, n, mpmath.mpf(p)) <= mpmath.mpf(alpha)
        assert p == pytest.approx(beta.ppf(alpha, count, n - count + 1), rel=1e-12)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
@pytest.mark.parametrize("alpha", [0.05, 0.0001, 0.0001 / 999])
def test_the_upper_bound_is_never_below_its_exact_value(n, alpha):
    """At the exact bound P(X ≤ count) = α; at ours it is at most α, to 40 digits."""
    for count in {0, 1, n // 100, n // 2, n - 1}:
        p = mpmath.mpf(float(clopper_pearson_upper(count, n, alpha)))
        assert binomial_tail(n - count, n, 1 - p) <= mpmath.mpf(alpha)
        assert p == pytest.approx(beta.isf(alpha, count + 1, n - count), rel=1e-9)
    assert clopper_pearson_upper(n, n, alpha) == 1.0


@pytest.mark.parametrize(
    ("n", "alpha", "count"),
    [(100_000, 0.001, 99_001), (100_000, 0.0005, 99_001), (10_000, 0.0001, 9001)],
)
def test_clopper_pearson_is_lowered_where_scipys_quantile_is_too_high(n, alpha, count):
    scipys = betaincinv(count, n - count + 1, alpha)
    assert binomial_tail(count, n, mpmath.mpf(float(scipys))) > mpmath.mpf(alpha)
    p = float(clopper_pearson_lower(count, n, alpha))
    assert binomial_tail(count, n, mpmath.mpf(p)) <= mpmath.mpf(alpha)
    assert p == pytest.approx(scipys, rel=1e-12)


def test_a_quantile_that_is_far_off_is_lowered_in_few_steps(monkeypatch):
    tests = []

    def counted(*shape_and_p):
        tests.append(shape_and_p)
        assert len(tests) < 50
        return betainc(*shape_and_p)

    monkeypatch.setattr("macer.smoothing.confidence.betaincinv", lambda a, b, alpha: np.array(0.9))
    monkeypatch.setattr("macer.smoothing.confidence.betainc", counted)
    p = float(clopper_pearson_lower(50, 100, 0.001))
    assert 0 < p <= beta.ppf(0.001, 50, 51)


def test_no_votes_give_the_bound_zero():
    assert clopper_pearson_lower(0, 100, 0.001) == 0.0
    assert hoeffding_lower(0.5, 100, 0.001) == bernstein_lower(0.5, 0.5, 100, 0.001) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_soft_bounds_are_never_above_their_exact_value(seed):
    """Also where Σ X² and (Σ X)²/n cancel: all samples alike, or all but a few."""
    random = np.random.default_rng(seed)
    unit, alpha = 2**-20, 0.001
    for _ in range(200):
        n = int(random.integers(40, 200_000))
        high = int(random.integers(2**19, 2**20))
        few, low = int(random.integers(0, 3)), high - int(random.integers(0, 40))
        total = (n - few) * high + few * low
        squares = (n - few) * high**2 + few * low**2
        bounds = (
            float(hoeffding_lower(total * unit, n, alpha)),
            float(bernstein_lower(total * unit, squares * unit**2, n, alpha)),
        )
        with mpmath.workdps(50):
            mean, log_term = mpmath.mpf(total) / n / 2**20, mpmath.log(2 / mpmath.mpf(alpha))
            variance = (squares - mpmath.mpf(total) ** 2 / n) / mpmath.mpf(2) ** 40 / (n - 1)
            hoeffding = mean - mpmath.sqrt(-mpmath.log(mpmath.mpf(alpha)) / (2 * n))
            bernstein = mean - mpmath.sqrt(2 * variance * log_term / n)
            bernstein -= 7 * log_term / (3 * (n - 1))
            assert bounds[0] <= max(hoeffding, 0) and bounds[1] <= max(bernstein, 0)
            assert bounds[1] >= bernstein - 1e-8


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_largest_where_every_sample_is_for_the_class(name):
    bound = BOUNDS[name]
    for n in (bound.least, 40, 500):
        [all_votes] = lower_of_votes(name, [n], n, 0.001)
        assert bound.largest(n, 0.001) == all_votes
    assert bound.largest(bound.least - 1, 0.001) == 0.0


def test_an_unknown_bound_is_refused():
    with pytest.raises(
        Mistake,
        match=r"^unknown bound 'wald'; choose from clopper-pearson, runner-up, anytime, hoeff",
    ):
        bound_named("wald")


def test_the_names_for_flags_are_those_of_the_table():
    assert get_args(BoundName) == tuple(BOUNDS)
    assert set(get_args(FixedBoundName)) == {name for name, b in BOUNDS.items() if not b.anytime}
    assert set(get_args(VoteBoundName)) == {name for name, b in BOUNDS.items() if not b.soft}
    assert set(READINGS + SOFT_READINGS) == set(get_args(FixedBoundName))
