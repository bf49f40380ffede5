"""Intervals of accuracies and of ACR: their formulas, and how often they miss."""

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import log_of, published_logs, random_log
from scipy.stats import beta, norm

from macer.reporting.intervals import Interval, acr_interval, interval_text, share_intervals
from macer.reporting.scores import average_certified_radius, standard_error


def known(log):
    return replace(log, sigma=0.5, n=1000, alpha=0.001)


LARGEST = 0.5 * norm.ppf(0.001 ** (1 / 1000))


# reference


def test_intervals_of_shares_are_scipys():
    counts = np.arange(1, 50)
    low, high = np.array(share_intervals(counts, 50)).T
    np.testing.assert_allclose(low, beta.ppf(0.025, counts, 50 - counts + 1), rtol=1e-11)
    np.testing.assert_allclose(high, beta.ppf(0.975, counts + 1, 50 - counts), rtol=1e-11)
    none, all_of_them = share_intervals([0, 50], 50)
    assert none.low == 0.0 and all_of_them.high == 1.0
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 50), rel=1e-12)


def test_the_interval_of_acr_is_empirical_bernsteins_of_radii_up_to_the_largest():
    log = known(random_log(3))
    x = log.radius * log.correct / LARGEST
    m, log_term = len(x), math.log(2 / 0.025)
    slack = math.sqrt(2 * x.var(ddof=1) * log_term / m) + 7 * log_term / (3 * (m - 1))
    expected = LARGEST * (x.mean() - slack), LARGEST * (x.mean() + slack)
    assert acr_interval(log) == pytest.approx(expected, rel=1e-9)


# law


@pytest.mark.parametrize("p", [0.02, 0.5, 0.9])
def test_intervals_of_shares_miss_one_time_in_twenty_at_most(p):
    counts = np.random.default_rng(0).binomial(100, p, 10_000)
    low, high = np.array(share_intervals(np.arange(101), 100)).T
    missed = (low[counts] > p) | (high[counts] < p)
    assert missed.mean() <= 0.05


def test_intervals_of_acr_miss_one_time_in_twenty_at_most():
    """Half of the images have no radius, the others any up to the largest."""
    random, missed = np.random.default_rng(0), 0
    for _ in range(500):
        radii = LARGEST * random.random(200) * random.integers(0, 2, 200)
        low, high = acr_interval(known(log_of([0] * 200, radii.tolist())))
        missed += not low <= LARGEST / 4 <= high
    assert missed <= 25


@pytest.mark.medium
def test_an_interval_holds_its_acr_and_is_wider_than_two_standard_errors():
    for sigma, published in zip((0.25, 0.5, 1.0), published_logs(), strict=True):
        log = replace(published, sigma=sigma, n=100_000, alpha=0.001)
        low, high = acr_interval(log)
        acr, error = average_certified_radius(log), standard_error(log)
        assert 0 <= low < acr - 2 * error < acr + 2 * error < high < acr + 6 * error


def test_wrong_predictions_count_as_0():
    right, wrong = (known(log_of([c] * 50, [0.5] * 50)) for c in (0, 1))
    assert acr_interval(wrong).low == 0.0 < acr_interval(right).low


# known value


def test_an_interval_is_printed_rounded_outwards():
    assert interval_text(Interval(0.12399, 0.98701)) == "0.123–0.988"
    assert interval_text(None) == "?"


# refusal


@pytest.mark.parametrize("unknown", ["sigma", "n", "alpha"])
def test_acr_has_no_interval_where_the_largest_radius_is_not_known(unknown):
    assert acr_interval(known(random_log(0))) is not None
    assert acr_interval(replace(known(random_log(0)), **{unknown: None})) is None


def test_acr_has_no_interval_for_one_image_or_a_radius_beyond_the_largest():
    assert acr_interval(known(log_of([0], [0.5]))) is None
    assert acr_interval(known(log_of([0, 0], [0.5, LARGEST * 1.01]))) is None
