import bisect
import itertools
import math
from contextlib import nullcontext

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import fftconvolve
from scipy.special import ndtr
from scipy.stats import binom

from macer.smoothing.confidence import clopper_pearson_lower
from macer.smoothing.sequential import (
    Decision,
    alternatives,
    check_radius,
    decisions,
    log_wealth,
    looks,
    p0_at,
)
from macer.system.errors import Mistake

ALPHA = 0.001
N_MAX = 100_000
P0 = {f"R = {z} sigma": float(ndtr(z)) for z in (0.0, 0.5, 1.0, 2.0, 3.0)}

probabilities = st.floats(0.01, 0.9999)


def literal_log_wealth(count, n, p0):
    """log Σⱼ wⱼ (pⱼ/p₀)ᵏ ((1 − pⱼ)/(1 − p₀))ⁿ⁻ᵏ to 60 digits."""
    with mpmath.workdps(60):
        p0 = mpmath.mpf(p0)
        total = mpmath.mpf(0)
        for p, weight in zip(*alternatives(float(p0)), strict=True):
            p = mpmath.mpf(p)
            total += weight * (p / p0) ** count * ((1 - p) / (1 - p0)) ** (n - count)
        return mpmath.log(total) if total else mpmath.mpf("-inf")


def fewest_robust(n, p0, n_max=N_MAX, alpha=ALPHA):
    """The fewest votes in n that are found ROBUST; n + 1 if none are."""

    def robust(count):
        return decisions(count, n, p0=p0, alpha=alpha, n_max=n_max) == Decision.ROBUST

    return bisect.bisect_left(range(n + 1), True, key=robust)


def fewest_by_peeking(n, p0):
    """The fewest votes in n whose Clopper–Pearson bound, as if n had been fixed, exceeds p₀."""
    return int(binom.isf(ALPHA, n, p0)) + 1


def chance_of_ever_reaching(votes, sizes, p):
    """P(K_n ≥ votes at one of the sizes), exactly: by the distribution of K_n where none yet is."""
    reached, n, alive = 0.0, 0, np.ones(1)
    for size, needed in zip(sizes, votes, strict=True):
        step = binom.pmf(np.arange(size - n + 1), size - n, p)
        alive = np.convolve(alive, step) if len(step) == 2 else fftconvolve(alive, step)
        reached += alive[needed:].sum()
        alive, n = alive[:needed], size
    return reached


def simulated_runs(p, p0, rng, *, n_max=N_MAX):
    """(robust, samples): complete runs at the real looks, one for each p."""
    count = np.zeros(len(p), np.int64)
    samples = np.zeros(len(p), np.int64)
    robust = np.zeros(len(p), bool)
    running = np.arange(len(p))
    for before, n in itertools.pairwise([0, *looks(n_max)]):
        count[running] += rng.binomial(n - before, p[running])
        samples[running] = n
        decision = decisions(count[running], n, p0=p0, alpha=ALPHA, n_max=n_max)
        robust[running[decision == Decision.ROBUST]] = True
        running = running[decision == Decision.OPEN]
    assert len(running) == 0
    return robust, samples


@pytest.mark.parametrize("p0", [0.5, 0.6914624612740131, 0.9772498680518208, 0.99993, 3e-4])
def test_log_wealth_is_the_literal_sum_and_never_above_it(p0):
    n = N_MAX
    cases = [(0, 0), (1, 1), (0, 1), (87, 100), (100, 100), (n, n), (n - 1, n), (0, n), (n // 3, n)]
    cases += [(min(round(n * p0 + z * math.sqrt(n * p0 * (1 - p0))), n), n) for z in (-30, 0, 4)]
    count, n = np.array(cases).T
    for k, size, value in zip(count, n, log_wealth(count, n, p0), strict=True):
        exact = literal_log_wealth(int(k), int(size), p0)
        assert mpmath.mpf(value) <= exact
        assert value == exact or value >= exact - 1e-9 * max(1, abs(exact))


@pytest.mark.medium
@settings(deadline=None)
@given(st.integers(0, N_MAX), st.integers(0, N_MAX), st.floats(0.4, 0.99999))
def test_log_wealth_is_never_above_its_exact_value(a, b, p0):
    count, n = min(a, b), max(a, b)
    assert mpmath.mpf(float(log_wealth(count, n, p0))) <= literal_log_wealth(count, n, p0)


@given(st.floats(0.01, 0.9999))
def test_alternatives_double_their_angle_from_p0_and_end_at_1(p0):
    p, weights = alternatives(p0)
    with mpmath.workdps(40):
        angle = mpmath.asin(mpmath.sqrt(p0))
        reached = [angle + 2**j * mpmath.mpf(0.008) for j in range(12)]
        expected = [float(mpmath.sin(a) ** 2) for a in reached if a < mpmath.pi / 2]
    np.testing.assert_allclose(1 - p, 1 - np.array([*expected, 1.0]), rtol=1e-9, atol=1e-15)
    assert weights.sum() == 1
    assert weights[:-1].tolist() == [2.0**-j for j in range(1, len(p))]


@given(st.just(0.0) | st.floats(1e-30, 8), st.floats(0.01, 10))
def test_threshold_is_the_least_float_not_below_Phi(z, sigma):
    radius = z * sigma
    p0 = p0_at(radius, sigma)
    with mpmath.workdps(80):
        exact = mpmath.ncdf(mpmath.mpf(radius) / mpmath.mpf(sigma))
        assert mpmath.mpf(np.nextafter(p0, 0)) < exact <= mpmath.mpf(p0)


@pytest.mark.medium
@settings(deadline=None)
@given(probabilities, st.floats(0, 1))
def test_wealth_is_a_fair_game_at_p0_and_a_losing_one_below(p0, share):
    n = np.arange(61)[:, None]
    count = np.arange(62)
    wealth = np.exp(log_wealth(np.minimum(count, n), n, p0))
    after_a_vote = np.exp(log_wealth(np.minimum(count, n) + 1, n + 1, p0))
    after_another = np.exp(log_wealth(np.minimum(count, n), n + 1, p0))
    fair = p0 * after_a_vote + (1 - p0) * after_another
    np.testing.assert_allclose(fair, wealth, rtol=1e-11)
    p = share * p0
    assert (p * after_a_vote + (1 - p) * after_another <= wealth * (1 + 1e-11)).all()


@given(probabilities, st.integers(1, 3000))
def test_a_vote_raises_the_wealth_and_another_lowers_it(p0, n):
    count = np.arange(n)
    wealth = log_wealth(count, n, p0)
    assert (log_wealth(count + 1, n + 1, p0) > wealth).all()
    assert (log_wealth(count, n + 1, p0) < wealth).all()


@pytest.mark.slow
@pytest.mark.parametrize("p0", [0.5, 0.6914624612740131, 0.9772498680518208])
def test_wealth_looked_at_after_every_sample_reaches_1_over_alpha_at_most_with_alpha(p0):
    sizes = np.arange(1, 1001)
    count = np.arange(1001)
    reached = log_wealth(np.minimum(count, sizes[:, None]), sizes[:, None], p0) >= -np.log(ALPHA)
    votes = np.where(reached.any(axis=1), reached.argmax(axis=1), sizes + 1)
    chance = chance_of_ever_reaching(votes, sizes, p0)
    assert ALPHA / 20 < chance <= ALPHA
    peeking = [fewest_by_peeking(n, p0) for n in sizes]
    assert chance_of_ever_reaching(peeking, sizes, p0) > 3 * ALPHA


@pytest.mark.parametrize("p0", P0.values(), ids=P0)
def test_a_false_verdict_at_the_real_looks_has_probability_at_most_alpha(p0):
    sizes = looks(N_MAX)
    chance = chance_of_ever_reaching([fewest_robust(n, p0) for n in sizes], sizes, p0)
    assert ALPHA / 2 < chance <= ALPHA
    peeking = [fewest_by_peeking(n, p0) for n in sizes]
    assert chance_of_ever_reaching(peeking, sizes, p0) > 3 * ALPHA


@pytest.mark.medium
@pytest.mark.parametrize("p0", [P0["R = 1.0 sigma"], P0["R = 3.0 sigma"]])
def test_complete_runs_at_p0_are_found_robust_at_most_at_their_level(p0):
    runs = 100_000
    rng = np.random.default_rng(0)
    count = np.zeros(runs, np.int64)
    robust, peeked = np.zeros((2, runs), bool)
    for before, n in itertools.pairwise([0, *looks(N_MAX)]):
        count += rng.binomial(n - before, p0, size=runs)
        # Votes at a look are few distinct numbers; and given-up runs go on here, the harder case.
        distinct, where = np.unique(count, return_inverse=True)
        decision = decisions(distinct, n, p0=p0, alpha=ALPHA, n_max=N_MAX)[where]
        robust |= decision == Decision.ROBUST
        peeked |= count >= fewest_by_peeking(n, p0)
    # 100 expected at the level itself; 151 is exceeded with probability under 1e-6.
    assert robust.sum() <= 151 < peeked.sum()


def chance_lost_by_giving_up(p, p0, n_max):
    """P(given up, and the votes at n_max would have been enough), exactly."""
    needed = fewest_robust(n_max, p0, n_max=n_max)
    lost, alive = 0.0, np.ones(1)
    for before, n in itertools.pairwise([0, *looks(n_max)]):
        alive = fftconvolve(alive, binom.pmf(np.arange(n - before + 1), n - before, p))
        count = np.arange(n + 1)
        decision = decisions(count, n, p0=p0, alpha=ALPHA, n_max=n_max)
        enough = binom.sf(needed - count - 1, n_max - n, p)
        lost += (alive * enough)[decision == Decision.GIVEN_UP].sum()
        alive = np.where(decision == Decision.OPEN, alive, 0.0)
    return lost


@pytest.mark.medium
@pytest.mark.parametrize("p0", P0.values(), ids=P0)
def test_giving_up_loses_a_robust_image_with_probability_below_a_tenth(p0):
    n_max = 10_000
    even_chance = fewest_robust(n_max, p0, n_max=n_max) / n_max
    further = even_chance + np.array([-1, 0, 1, 2]) * np.sqrt(p0 * (1 - p0) / n_max)
    lost = [chance_lost_by_giving_up(p, p0, n_max) for p in further if p < 1]
    assert 1e-5 < max(lost) <= 0.1


@pytest.mark.parametrize(
    ("p0", "alpha", "n_max"),
    [(0.8, 0.001, 700), (0.5, 0.05, 60), (float(clopper_pearson_lower(50, 60, 0.025)), 0.05, 60)],
)
def test_the_last_look_decides_as_clopper_pearson_at_half_alpha(p0, alpha, n_max):
    count = np.arange(n_max + 1)
    decision = decisions(count, n_max, p0=p0, alpha=alpha, n_max=n_max)
    certified = clopper_pearson_lower(count, n_max, alpha / 2) > p0
    assert certified.any()
    np.testing.assert_array_equal(
        decision, np.where(certified, Decision.ROBUST, Decision.GIVEN_UP).astype(int)
    )


@given(probabilities, st.integers(1, 2000), st.floats(1e-4, 0.2))
def test_an_early_look_finds_robust_what_has_wealth_2_over_alpha_and_more_votes_help(p0, n, alpha):
    count = np.arange(n + 1)
    decision = decisions(count, n, p0=p0, alpha=alpha, n_max=N_MAX)
    np.testing.assert_array_equal(
        decision == Decision.ROBUST, log_wealth(count, n, p0) >= np.log(2 / alpha)
    )
    rank = np.select([decision == Decision.ROBUST, decision == Decision.GIVEN_UP], [1, -1], 0)
    assert (np.diff(rank) >= 0).all()


@pytest.mark.medium
@given(st.integers(1, 100), st.floats(0.5, 0.99), st.floats(1e-4, 0.2))
def test_no_votes_to_come_can_undo_what_the_count_decides(n_max, p0, alpha):
    n = np.arange(n_max + 1)[:, None]
    count = np.minimum(np.arange(n_max + 1), n)
    decision = decisions(count, n, p0=p0, alpha=alpha, n_max=n_max)
    certified = clopper_pearson_lower(np.arange(n_max + 1), n_max, alpha / 2) > p0
    assert (decision[certified[count]] == Decision.ROBUST).all()
    hopeless = ~certified[count + n_max - n]
    assert (decision[hopeless] == Decision.GIVEN_UP).all()


@given(st.integers(1, 50_000), st.integers(0, 50_000))
def test_looks_are_whole_chunks_an_eighth_apart_whatever_the_end(n_max, more):
    sizes = looks(n_max)
    assert sizes[-1] == n_max
    assert all(n % 100 == 0 for n in sizes[:-1])
    steps = itertools.pairwise([0, *sizes])
    assert all(n < after <= n + max(100, n / 8) for n, after in steps)
    assert sizes[:-1] == [n for n in looks(n_max + more) if n < n_max]


def test_images_spread_over_all_radii_take_a_twentieth_of_the_samples():
    """z = Φ⁻¹(p_A) spread evenly, as the radii of published certificates nearly are."""
    p = ndtr(np.linspace(-1, 4, 20_000))
    for radius, fewer in ((0.5, 40), (2.0, 20)):
        p0 = p0_at(radius, 1.0)
        robust, samples = simulated_runs(p, p0, np.random.default_rng(0))
        fixed = binom.sf(fewest_by_peeking(N_MAX, p0) - 1, N_MAX, p)
        assert samples.mean() < N_MAX / fewer
        assert fixed.mean() - robust.mean() < 0.003


def test_known_values():
    assert p0_at(0.0, 0.25) == 0.5
    assert p0_at(0.25, 0.25) == pytest.approx(0.8413447460685429, abs=1e-15)
    assert p0_at(5e-324, 1.0) == np.nextafter(0.5, 1)
    assert p0_at(100.0, 1.0) == 1.0
    assert looks(50) == [50]
    assert looks(250) == [100, 200, 250]
    assert looks(N_MAX)[14:20] == [1500, 1600, 1800, 2000, 2200, 2400]
    # So near to 1 all is bet on p = 1: W = p₀⁻ⁿ, and nothing is left after another vote.
    assert log_wealth(N_MAX, N_MAX, 0.99995) == pytest.approx(-N_MAX * math.log(0.99995), rel=1e-9)
    assert log_wealth(N_MAX - 1, N_MAX, 0.99995) == -np.inf
    decision = decisions([100, 0, 90, 90], [100, 100, 100, 200], p0=0.84, alpha=ALPHA, n_max=N_MAX)
    assert [Decision(v) for v in decision] == [
        Decision.ROBUST,
        Decision.GIVEN_UP,
        Decision.OPEN,
        Decision.GIVEN_UP,
    ]


@pytest.mark.parametrize(
    ("radius", "sigma", "message"),
    [
        (-0.5, 0.25, "radius must be a number ≥ 0, got -0.5"),
        (math.nan, 0.25, "radius must be a number ≥ 0, got nan"),
        (math.inf, 0.25, "radius must be a number ≥ 0, got inf"),
        (0.5, 0.0, "sigma must be > 0, got 0.0"),
        (0.5, math.inf, "sigma must be > 0, got inf"),
    ],
)
def test_a_meaningless_radius_or_sigma_is_refused(radius, sigma, message):
    with pytest.raises(Mistake) as refused:
        p0_at(radius, sigma)
    assert str(refused.value) == message


def test_a_radius_beyond_the_reach_of_n_max_samples_is_refused():
    largest = 0.9469  # 0.25·Φ⁻¹(0.0005^(1/100000)), rounded down
    check_radius(largest, sigma=0.25, alpha=ALPHA, n_max=N_MAX)
    p0 = p0_at(largest, 0.25)
    assert decisions(N_MAX, N_MAX, p0=p0, alpha=ALPHA, n_max=N_MAX) == Decision.ROBUST
    with pytest.raises(Mistake) as refused:
        check_radius(1.0, sigma=0.25, alpha=ALPHA, n_max=N_MAX)
    assert str(refused.value) == (
        "radius must be below 0.9469, the most that 100000 samples can certify at sigma 0.25 "
        "and alpha 0.001, got 1; raise n"
    )


def test_a_radius_is_out_of_reach_where_the_largest_bound_only_equals_its_threshold(monkeypatch):
    """p_A must exceed p₀."""
    p0 = p0_at(0.5, 0.25)
    for p_a, reached in ((p0, False), (np.nextafter(p0, 1.0), True)):
        monkeypatch.setattr(
            "macer.smoothing.sequential.clopper_pearson_lower", lambda *_, p_a=p_a: np.float64(p_a)
        )
        context = nullcontext() if reached else pytest.raises(Mistake, match="radius must be below")
        with context:
            check_radius(0.5, sigma=0.25, alpha=ALPHA, n_max=N_MAX)


@pytest.mark.parametrize(("count", "n"), [(-1, 100), (101, 100), (100, 300), ([5, 9], [10, 8])])
def test_impossible_counts_are_refused(count, n):
    with pytest.raises(Mistake, match=r"count must be from 0 to n and n at most 200, got -?\d+ of"):
        decisions(count, n, p0=0.8, alpha=ALPHA, n_max=200)


def test_other_impossible_settings_are_refused():
    with pytest.raises(Mistake, match="p0 must be between 0 and 1, got 1"):
        log_wealth(5, 5, 1.0)
    with pytest.raises(Mistake, match="n_max must be at least 1, got 0"):
        looks(0)
