"""The bound that holds at any time: formula, rounding, and its level over all moments at once."""

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import anytime_wealth
from scipy.stats import binom

from macer.smoothing.confidence import clopper_pearson_lower
from macer.smoothing.confidence_sequence import confidence_sequence_lower, log_wealth

ALPHA = 0.001
P = (0.5, 0.6, 0.9, 0.99, 0.999)

counts_of_n = st.integers(1, 200_000).flatmap(
    lambda n: st.tuples(st.one_of(st.integers(0, n), st.integers(max(n - 30, 0), n)), st.just(n))
)


def wealth(count, n, p0):
    arrays = (np.asarray(values, dtype=np.float64) for values in (count, n, p0))
    return log_wealth(*np.broadcast_arrays(*arrays))


def votes_needed(sizes, p, alpha):
    """The fewest votes at each size whose wealth against p reaches 1/α; one more than n if none."""
    low, high = np.full(len(sizes), -1), sizes + 1
    while (high - low > 1).any():
        middle = (low + high) // 2
        reached = (wealth(middle, sizes, p) >= -np.log(alpha)) & (middle <= sizes)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high


def chance_of_ever_reaching(votes, p):
    """P(Kₙ ≥ votes[n − 1] at one n of 1, 2, …), by the distribution of Kₙ where that is not yet."""
    alive, reached = np.ones(1), 0.0
    for needed in votes:
        grown = np.zeros(len(alive) + 1)
        grown[:-1] += alive * (1 - p)
        grown[1:] += alive * p
        reached += grown[needed:].sum()
        alive = grown[:needed]
    return reached


# reference


@pytest.mark.medium
@settings(deadline=None, max_examples=200)
@given(counts_of_n, st.sampled_from([0.05, 0.001, 1e-9]))
@example((1, 324), 0.001)  # p̲ is 2.4e-7: 1 − p̲ has half of its digits
@example((1, 200_000), 1e-9)
def test_the_bound_passes_the_literal_test_and_hardly_more_would(counts, alpha):
    count, n = counts
    p = float(confidence_sequence_lower(count, n, alpha))
    with mpmath.workdps(50):
        if count == 0:
            assert p == 0
            return
        assert anytime_wealth(count, n, p) >= 1 / mpmath.mpf(alpha)
        more = p + 1e-9 * min(p, 1 - p) + 1e-16
        assert anytime_wealth(count, n, more) < 1 / mpmath.mpf(alpha)


@pytest.mark.medium
@settings(deadline=None, max_examples=200)
@given(counts_of_n, st.floats(0.001, 0.99999999))
def test_log_wealth_is_the_literal_sum_and_never_above_it(counts, p0):
    value = float(wealth(*counts, p0))
    with mpmath.workdps(50):
        total = anytime_wealth(*counts, p0)
        exact = mpmath.log(total) if total else mpmath.ninf
        assert mpmath.mpf(value) <= exact
        assert value >= exact - 1e-8 * max(1, abs(exact)) or exact < -1e5


# law


@pytest.mark.parametrize("alpha", [0.05, ALPHA])
@pytest.mark.parametrize("p", P)
def test_p_is_ever_excluded_within_10000_samples_at_most_with_alpha(p, alpha):
    """Exactly, for a look after every sample; at p itself, the hardest case for p_A ≤ p."""
    sizes = np.arange(1, 10_001)
    chance = chance_of_ever_reaching(votes_needed(sizes, p, alpha), p)
    assert alpha / 20 < chance <= alpha


@pytest.mark.parametrize("p", P)
def test_a_bound_for_one_n_looked_at_after_every_sample_excludes_p_more_often(p):
    """What the test above would catch."""
    sizes = np.arange(1, 10_001)
    peeking = binom.isf(ALPHA, sizes, p).astype(int) + 1
    assert chance_of_ever_reaching(peeking, p) > 1.5 * ALPHA


@pytest.mark.parametrize("p", P)
def test_the_bound_excludes_p_where_the_wealth_against_it_says_so(p):
    """So that the chances above are the bound's."""
    sizes = np.unique(np.geomspace(20, 10_000, 60).astype(int))
    needed = votes_needed(sizes, p, ALPHA)
    sizes, needed = sizes[needed <= sizes], needed[needed <= sizes]
    assert len(sizes) > 2
    assert (confidence_sequence_lower(needed, sizes, ALPHA) >= p - 1e-12).all()
    assert (confidence_sequence_lower(needed - 1, sizes, ALPHA) < p).all()


@pytest.mark.slow
@pytest.mark.parametrize("p", P)
def test_simulated_paths_exclude_p_at_most_at_their_level(p):
    """100,000 paths of 10,000 steps, in blocks of a step to sixteen; a look after each block."""
    rng, paths = np.random.default_rng(0), 100_000
    count, excluded, n = np.zeros(paths, np.int64), np.zeros(paths, bool), 0
    while n < 10_000:
        step = min(1 + n // 256, 16)
        n, count = n + step, count + rng.binomial(step, p, size=paths)
        excluded |= count >= votes_needed(np.array([n]), p, ALPHA)[0]
    # 100 expected at the level itself; 151 is exceeded with probability under 1e-6.
    assert 0 < excluded.sum() <= 151


@pytest.mark.medium
@given(st.floats(0.01, 0.9999), st.floats(0, 1))
def test_wealth_is_a_fair_game_at_p0_and_a_losing_one_below(p0, share):
    n = np.arange(61)[:, None]
    count = np.minimum(np.arange(62), n)
    before = np.exp(wealth(count, n, p0))
    vote, other = np.exp(wealth(count + 1, n + 1, p0)), np.exp(wealth(count, n + 1, p0))
    np.testing.assert_allclose(p0 * vote + (1 - p0) * other, before, rtol=1e-9)
    p = share * p0
    assert (p * vote + (1 - p) * other <= before * (1 + 1e-9)).all()


@given(counts_of_n)
def test_wealth_falls_as_p0_grows_so_that_what_is_excluded_is_an_interval(counts):
    p0 = np.linspace(0.001, 0.999999, 500)
    values = wealth(*counts, p0)
    finite = values > -np.inf
    assert (np.diff(values[finite]) <= 0).all()
    assert (np.diff(finite.astype(int)) <= 0).all()  # once nothing is left, nothing comes back


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 3000), st.sampled_from([0.05, ALPHA, 1e-6]))
def test_the_bound_grows_with_the_votes_and_is_below_clopper_pearsons(n, alpha):
    """Of all bounds for one n that grow with the votes, Clopper–Pearson's is the largest."""
    count = np.unique(np.linspace(0, n, 300).astype(int))
    lower = confidence_sequence_lower(count, n, alpha)
    assert (np.diff(lower) > 0).all()
    assert (lower <= clopper_pearson_lower(count, n, alpha)).all()
    assert (lower < 1).all()


def test_each_count_may_have_its_own_n():
    count, n = np.array([0, 17, 90, 1000, 0]), np.array([0, 20, 100, 1000, 10])
    together = confidence_sequence_lower(count, n, ALPHA)
    alone = [float(confidence_sequence_lower(*one, ALPHA)) for one in zip(count, n, strict=True)]
    assert together.tolist() == alone
    assert together[0] == together[4] == 0


def test_more_samples_of_the_same_share_raise_the_bound():
    n = 200 * 2 ** np.arange(16)
    for share in (0.6, 0.9, 0.995, 1.0):
        assert (np.diff(confidence_sequence_lower(share * n, n, ALPHA)) > 0).all()


# known value


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
def test_votes_that_are_all_alike_cost_at_most_a_factor_of_four_in_alpha(n):
    lower = confidence_sequence_lower(n, n, ALPHA)
    assert clopper_pearson_lower(n, n, ALPHA / 4) <= lower < clopper_pearson_lower(n, n, ALPHA)


@pytest.mark.parametrize("n", [100, 1000, 10_000, 100_000])
@pytest.mark.parametrize("share", [0.55, 0.9, 0.99])
def test_the_price_is_at_most_three_sevenths_of_the_fixed_bounds_distance(n, share):
    """In the angle arcsin √p, in which every p has the same standard error."""
    angles = [
        float(np.arcsin(np.sqrt(p)))
        for p in (
            share,
            confidence_sequence_lower(share * n, n, ALPHA),
            clopper_pearson_lower(share * n, n, ALPHA),
        )
    ]
    assert 1 < (angles[0] - angles[1]) / (angles[0] - angles[2]) < 10 / 7


def test_known_values():
    lower = confidence_sequence_lower([100, 99, 9_990, 99_990], [100, 100, 10_000, 100_000], ALPHA)
    expected = [0.922561005, 0.868675872, 0.99692976, 0.99969674]
    np.testing.assert_allclose(lower, expected, rtol=1e-6)
