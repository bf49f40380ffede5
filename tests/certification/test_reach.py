import itertools

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from macer.certification.reach import (
    Course,
    check_reach,
    course,
    largest_radius,
    least_n,
    least_n_in_steps,
    least_sigma,
    p_a_at,
)
from macer.smoothing.bounds import BOUNDS, bound_named
from macer.smoothing.confidence import radius_lower
from macer.smoothing.sequential import Decision, check_radius, decisions, looks, p0_at
from macer.system.errors import Mistake

WORDS = {Decision.OPEN: "open", Decision.ROBUST: "robust", Decision.GIVEN_UP: "given up"}

radii = st.floats(0.05, 1.5)
sigmas = st.floats(0.12, 2.0)
alphas = st.floats(1e-6, 0.1)
names = st.sampled_from(list(BOUNDS))

# reference


@pytest.mark.parametrize("n", [10, 100, 1000, 100_000, 10**7])
@pytest.mark.parametrize(("sigma", "alpha"), [(0.25, 0.001), (1.0, 1e-6)])
def test_the_largest_radius_is_the_papers_and_never_above_it(n, sigma, alpha):
    papers = reference.largest_radius(n, sigma=sigma, alpha=alpha)
    ours = largest_radius(n, sigma=sigma, alpha=alpha)
    assert ours == pytest.approx(max(papers, 0.0), rel=1e-6)
    assert ours <= max(papers, 0.0) * (1 + 1e-9)


@pytest.mark.parametrize("p_a", [0.5, 0.7, 0.8, 0.95, 1.0])
@pytest.mark.parametrize(("radius", "n"), [(0.1, 400), (0.5, 350)])
def test_the_course_is_that_of_every_number_of_votes(p_a, radius, n):
    p0 = p0_at(radius, 0.5)
    told = {
        (int(k), size): WORDS[Decision(decision)]
        for size in looks(n)
        for k, decision in enumerate(
            decisions(np.arange(size + 1), size, p0=p0, alpha=0.001, n_max=n)
        )
    }
    expected, robust = reference.sequential_samples(
        p_a, looks=looks(n), verdict=lambda k, size: told[k, size]
    )
    ours = course(p_a, radius=radius, sigma=0.5, alpha=0.001, n=n)
    assert ours.samples == pytest.approx(expected, rel=1e-9)
    assert ours.robust == pytest.approx(robust, abs=1e-9)


# law


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(radii, sigmas, alphas, names)
def test_the_least_n_is_enough_and_one_less_is_not(radius, sigma, alpha, bound):
    level = {"sigma": sigma, "alpha": alpha, "bound": bound}
    n = least_n(radius, **level)
    if n is None:
        return
    p_a = np.array([bound_named(bound).largest(size, alpha) for size in (n, n - 1) if size])
    enough = radius_lower(p_a, sigma) >= radius
    assert enough.tolist() == [True, False][: len(enough)]
    check_reach(radius, n=n, **level)
    if n > 1:
        with pytest.raises(Mistake, match="radius must be at most"):
            check_reach(radius, n=n - 1, **level)


@settings(max_examples=40, deadline=None)
@given(radii, sigmas, alphas)
def test_the_least_n_of_one_radius_is_what_certify_takes(radius, sigma, alpha):
    n = least_n_in_steps(radius, sigma=sigma, alpha=alpha)
    if n is None:
        return
    check_radius(radius, sigma=sigma, alpha=alpha, n_max=n)
    if n > 1:
        with pytest.raises(Mistake):
            check_radius(radius, sigma=sigma, alpha=alpha, n_max=n - 1)
    assert n >= least_n(radius, sigma=sigma, alpha=alpha)


@settings(max_examples=80, deadline=None)
@given(st.floats(1e-3, 50.0), st.integers(20, 10**6), alphas, names)
def test_the_suggested_sigma_is_enough_and_one_percent_less_is_not(radius, n, alpha, bound):
    sigma = least_sigma(radius, n=n, alpha=alpha, bound=bound)
    if sigma is None:
        assert largest_radius(n, sigma=1e6, alpha=alpha, bound=bound) == 0
        return
    level = {"n": n, "alpha": alpha, "bound": bound}
    assert largest_radius(sigma=sigma, **level) >= radius
    assert largest_radius(sigma=0.99 * sigma, **level) < radius
    assert float(f"{sigma:.4g}") == sigma


def test_the_course_is_that_of_simulated_images():
    p_a, level = 0.9, {"radius": 0.5, "sigma": 0.5, "alpha": 0.001}
    ours = course(p_a, n=10_000, **level)
    random, p0 = np.random.default_rng(0), p0_at(0.5, 0.5)
    count, running, samples, robust = np.zeros(4000, int), np.arange(4000), 0, 0
    for before, n in itertools.pairwise([0, *looks(10_000)]):
        count[running] += random.binomial(n - before, p_a, len(running))
        samples += (n - before) * len(running)
        decision = decisions(count[running], n, p0=p0, alpha=0.001, n_max=10_000)
        robust += (decision == Decision.ROBUST).sum()
        running = running[decision == Decision.OPEN]
    assert samples / 4000 == pytest.approx(ours.samples, rel=0.05)
    assert robust / 4000 == pytest.approx(ours.robust, abs=0.02)


def test_what_is_further_from_the_radius_is_decided_sooner():
    level = {"radius": 0.5, "sigma": 0.5, "alpha": 0.001, "n": 100_000}
    above = [course(p_a_at(share * 0.5, 0.5), **level) for share in (1.1, 1.25, 1.5, 2.0)]
    below = [course(p_a_at(share * 0.5, 0.5), **level) for share in (0.9, 0.75, 0.5)]
    for courses in (above, below):
        samples = [one.samples for one in courses]
        assert samples == sorted(samples, reverse=True)
    assert min(one.robust for one in above) > 0.99 and max(one.robust for one in below) < 0.001
    assert all(one.shares[0] == 1 and one.samples >= one.steps[0] for one in above + below)


def test_an_image_at_the_radius_is_certified_no_more_often_than_alpha():
    p_a = p0_at(0.5, 0.5)
    assert course(p_a, radius=0.5, sigma=0.5, alpha=0.001, n=20_000).robust <= 0.001


# known value


def test_known_values():
    level = {"sigma": 0.5, "alpha": 0.001}
    assert [least_n(radius, **level) for radius in (0.25, 0.5, 1.0, 1.5)] == [19, 40, 301, 5114]
    assert least_n(3.5, **level) is None  # seven σ
    assert least_n(2.0, **level, bound="hoeffding") is None
    assert largest_radius(100_000, **level) == pytest.approx(0.5 * 3.8115, abs=1e-4)
    assert least_sigma(2.0, n=100_000, alpha=0.001) == 0.5248
    assert Course(0.9, (100, 100, 200), (1.0, 0.5, 0.25), 1.0).samples == 200


# refusal


def test_a_radius_out_of_reach_is_refused_with_what_would_do():
    with pytest.raises(Mistake) as refusal:
        check_reach(2.0, n=100_000, sigma=0.5, alpha=0.001)
    assert str(refusal.value) == (
        "radius must be at most 1.9057, which 100,000 votes for one class certify at sigma 0.5 "
        "and alpha 0.001, got 2; raise n to 218,105 or sigma to 0.5248"
    )
    with pytest.raises(Mistake, match=r"got 3\.5; raise sigma to 0\.9183$"):
        check_reach(3.5, n=100_000, sigma=0.5, alpha=0.001)


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_a_radius_is_a_positive_number(radius):
    with pytest.raises(Mistake, match="radius must be a number > 0, got "):
        check_reach(radius, n=1000, sigma=0.5, alpha=0.001)
