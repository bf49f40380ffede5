import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from macer.smoothing.confidence import clopper_pearson_lower, radius_lower
from macer.smoothing.radius import certified_radius
from macer.system.errors import Mistake

mpmath.mp.dps = 40


def float64(*values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


@given(st.floats(0.5, 1.0, exclude_min=True, exclude_max=True), st.floats(0.05, 4))
def test_radius_is_never_above_its_exact_value(p, sigma):
    exact = mpmath.mpf(sigma) * mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)
    radius = float(radius_lower(np.array([p]), sigma)[0])
    assert mpmath.mpf(radius) <= exact
    assert radius == pytest.approx(float(exact), rel=1e-12)


@given(st.floats(1e-12, 1 - 1e-12), st.floats(1e-12, 1 - 1e-12), st.floats(0.05, 4))
def test_radius_of_two_bounds_is_never_above_its_exact_value(p_a, p_b, sigma):
    [radius] = radius_lower(np.array([p_a]), sigma, np.array([p_b]))
    if p_a <= p_b:
        assert radius == 0.0 and not np.signbit(radius)
        return
    own, rival = (mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1) for p in (p_a, p_b))
    exact = mpmath.mpf(sigma) / 2 * (own - rival)
    assert mpmath.mpf(float(radius)) <= exact
    size = sigma / 2 * float(abs(own) + abs(rival))
    assert radius == pytest.approx(float(exact), rel=1e-12, abs=1e-13 * size)


@given(st.floats(0.5, 1.0, exclude_min=True, exclude_max=True), st.floats(0.05, 4))
def test_without_a_bound_of_p_b_the_radius_is_cohens_in_every_bit(p_a, sigma):
    alone, both = radius_lower(np.array([p_a]), sigma), np.array([1 - p_a])
    assert radius_lower(np.array([p_a]), sigma, both).tobytes() == alone.tobytes()


def test_the_constant_classifiers_radius_is_known():
    p = clopper_pearson_lower(100_000, 100_000, 0.001)
    assert p == pytest.approx(0.001 ** (1 / 100_000), rel=1e-14)
    assert radius_lower(p[None], 1.0)[0] == pytest.approx(3.81145656, abs=1e-8)


def test_radius_is_zero_where_the_bound_does_not_exceed_one_half():
    zeros = radius_lower(np.array([0.0, 0.3, 0.5]), 1.0)
    assert zeros.tolist() == [0.0, 0.0, 0.0]
    assert not np.signbit(zeros).any()  # a table would print -0.0


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


@pytest.mark.parametrize("p", [0.9, [0.9], np.array([0.9])])
def test_certified_radius_refuses_what_is_no_tensor(p):
    with pytest.raises(Mistake, match=r"^p_a must be a tensor, got .*; convert it with torch.as_"):
        certified_radius(p, torch.tensor([0.1]), 0.5)
    with pytest.raises(Mistake, match=r"^p_b must be a tensor, got .*; convert it with torch.as_"):
        certified_radius(torch.tensor([0.9]), p, 0.5)


@pytest.mark.parametrize("sigma", [0.0, -0.5, float("nan")])
def test_certified_radius_refuses_a_sigma_that_is_not_above_0(sigma):
    with pytest.raises(Mistake, match=r"^sigma must be > 0, got "):
        certified_radius(torch.tensor([0.9]), torch.tensor([0.1]), sigma)


def test_certified_radius_refuses_a_sigma_that_is_no_number():
    with pytest.raises(Mistake, match=r"^sigma must be a number, got '0\.5'$"):
        certified_radius(torch.tensor([0.9]), torch.tensor([0.1]), "0.5")
