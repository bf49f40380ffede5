import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv
from scipy.stats import beta, binom

from macer.smoothing.radius import (
    bernstein_lower,
    certified_radius,
    clopper_pearson_lower,
    hoeffding_lower,
    radius_lower,
)

mpmath.mp.dps = 40

BOUNDS = {
    "clopper-pearson": lambda k, n, alpha: clopper_pearson_lower(k, n, alpha),
    "hoeffding": lambda k, n, alpha: hoeffding_lower(k, n, alpha),
    "bernstein": lambda k, n, alpha: bernstein_lower(k, k, n, alpha),  # X² = X for votes
}


def float64(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


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


def test_hoeffding_equals_the_papers_formula():
    expected = 0.9 - np.sqrt(-np.log(0.001) / 2000)
    assert hoeffding_lower(900, 1000, 0.001) == pytest.approx(expected, rel=1e-12)


def test_bernstein_equals_the_papers_formula():
    x = np.random.default_rng(0).random(500)
    log_term = np.log(2 / 0.001)
    expected = x.mean() - np.sqrt(2 * x.var(ddof=1) * log_term / 500) - 7 * log_term / (3 * 499)
    assert bernstein_lower(x.sum(), (x**2).sum(), 500, 0.001) == pytest.approx(expected, 1e-12)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("n", [2, 10, 37, 100, 1000])
def test_no_bound_misses_more_often_than_alpha(bound, alpha, n):
    """P(bound(X) > p) for X ~ Binomial(n, p), summed exactly over all outcomes.

    The miss probability peaks where p is just below one of the bound's own values, so those are
    tried beside an even grid.
    """
    count = np.arange(n + 1)
    lower = BOUNDS[bound](count, n, alpha)
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

    monkeypatch.setattr("macer.smoothing.radius.betaincinv", lambda a, b, alpha: np.array(0.9))
    monkeypatch.setattr("macer.smoothing.radius.betainc", counted)
    p = float(clopper_pearson_lower(50, 100, 0.001))
    assert 0 < p <= beta.ppf(0.001, 50, 51)


@given(st.floats(0.5, 1.0, exclude_min=True, exclude_max=True), st.floats(0.05, 4))
def test_radius_is_never_above_its_exact_value(p, sigma):
    exact = mpmath.mpf(sigma) * mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)
    radius = float(radius_lower(np.array([p]), sigma)[0])
    assert mpmath.mpf(radius) <= exact
    assert radius == pytest.approx(float(exact), rel=1e-12)


def test_the_constant_classifiers_radius_is_known():
    p = clopper_pearson_lower(100_000, 100_000, 0.001)
    assert p == pytest.approx(0.001 ** (1 / 100_000), rel=1e-14)
    assert radius_lower(p[None], 1.0)[0] == pytest.approx(3.81145656, abs=1e-8)


def test_radius_is_zero_where_the_bound_does_not_exceed_one_half():
    zeros = radius_lower(np.array([0.0, 0.3, 0.5]), 1.0)
    assert zeros.tolist() == [0.0, 0.0, 0.0]
    assert not np.signbit(zeros).any()  # a table would print -0.0


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
        found = (
            float(hoeffding_lower(total * unit, n, alpha)),
            float(bernstein_lower(total * unit, squares * unit**2, n, alpha)),
        )
        with mpmath.workdps(50):
            mean, log_term = mpmath.mpf(total) / n / 2**20, mpmath.log(2 / mpmath.mpf(alpha))
            variance = (squares - mpmath.mpf(total) ** 2 / n) / mpmath.mpf(2) ** 40 / (n - 1)
            hoeffding = mean - mpmath.sqrt(-mpmath.log(mpmath.mpf(alpha)) / (2 * n))
            bernstein = mean - mpmath.sqrt(2 * variance * log_term / n)
            bernstein -= 7 * log_term / (3 * (n - 1))
            assert found[0] <= max(hoeffding, 0) and found[1] <= max(bernstein, 0)
            assert found[1] >= bernstein - 1e-8


def test_certified_radius_is_half_sigma_times_the_difference_of_quantiles():
    p_a, p_b = float64(0.9, 0.05)
    assert certified_radius(p_a, p_b, 0.5).item() == pytest.approx(
        0.5 / 2 * (1.2815516 + 1.6448536)
    )


def test_certified_radius_is_accurate_where_p_a_rounds_to_one():
    one, tiny = torch.tensor(1.0), torch.tensor(1e-20)
    assert certified_radius(one, tiny, 1.0, q_a=tiny).item() == pytest.approx(9.262340, abs=1e-5)


def test_certified_radius_is_differentiable():
    p_a, p_b = (p.requires_grad_() for p in float64([0.9, 0.6], [0.05, 0.3]))
    assert torch.autograd.gradcheck(lambda a, b: certified_radius(a, b, 0.25), (p_a, p_b))


def test_a_radius_is_computed_by_the_implementation_that_is_the_same_on_every_processor():
    """torch's Φ⁻¹ has other last bits with other instruction sets."""
    from scipy.special import ndtri

    p_a = np.linspace(0.5, 1, 5000, endpoint=False)
    expected = 0.5 * -ndtri(1 - p_a) * (1 - 2.0**-49) + 0.0
    assert radius_lower(p_a, 0.5).tobytes() == expected.tobytes()
