"""What settings and images a certification takes, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from macer.certification.settings import as_images, check_settings
from macer.errors import Mistake

SHAPE = (1, 4, 4)


# law


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_that_are_multiples_of_a_255th_are_8_bit_images(dtype):
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    floats = (images.double() / 255).to(dtype)
    assert torch.equal(as_images(floats), images)
    assert torch.equal(as_images(images.to(dtype) / 255), images)
    near = floats.clone()
    near[0, 0, 0, 1] *= 1 + 2 * torch.finfo(dtype).eps
    assert as_images(near).dtype == torch.float32
    assert as_images(floats, exact=False).dtype == torch.float32


def test_images_may_be_numpy_arrays():
    images = np.random.default_rng(0).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    images.flags.writeable = False
    for array in (images, images / 255, (images / 255).astype(">f4"), images[:, :, ::-1, ::-1]):
        pixels = as_images(array)
        assert pixels.dtype == torch.uint8
        np.testing.assert_allclose(pixels / 255, array / array.max() * (images.max() / 255), 1e-6)


# refusal


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 0.0}, "sigma must be > 0, got 0.0"),
        ({"sigma": -0.25}, "sigma must be > 0, got -0.25"),
        ({"sigma": math.nan}, "sigma must be > 0, got nan"),
        ({"sigma": math.inf}, "sigma must be > 0, got inf"),
        ({"beta": math.inf, "bound": "bernstein"}, "beta must be > 0, got inf"),
        ({"seed": -1}, "seed must be in [0, 2⁶³), got -1"),
        ({"seed": 2**63}, "seed must be in [0, 2⁶³), got 9223372036854775808"),
        ({"n": 1, "bound": "bernstein"}, "n must be at least 37 to certify anything"),
        ({"alpha": 0.0}, "alpha must be between 0 and 1, got 0.0"),
        ({"alpha": 1.0}, "alpha must be between 0 and 1, got 1.0"),
        ({"n0": 0}, "n0 must be at least 1, got 0"),
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"n": 10**30}, "n must be at most 1,000,000,000,000, got 1"),
        ({"n": 9}, "n must be at least 10 to certify anything at alpha 0.001 with the "
                   "clopper-pearson bound, got 9"),
        ({"n": 13, "bound": "hoeffding"}, "n must be at least 14 to certify anything"),
        ({"n": 30, "bound": "bernstein"}, "n must be at least 37 to certify anything"),
        ({"bound": "wald"}, "unknown bound 'wald'; choose from clopper-pearson, runner-up"),
        ({"beta": 0.0, "bound": "hoeffding"}, "beta must be > 0, got 0.0"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(Mistake) as refusal:
        check_settings(**{"sigma": 0.25, "n0": 100, "n": 1000, "alpha": 0.001} | settings)
    assert message in str(refusal.value)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, 255.0])
def test_images_outside_the_unit_interval_are_refused(value):
    images = torch.full((1, *SHAPE), 0.5)
    images[0, 0, 1, 1] = value
    with pytest.raises(Mistake, match=r"images must have values in \[0, 1\], got"):
        as_images(images)


def test_the_least_n_and_the_largest_seed_that_make_sense_are_taken():
    for bound, n in {"clopper-pearson": 10, "hoeffding": 14, "bernstein": 37}.items():
        check_settings(sigma=1.0, n0=1, n=n, alpha=0.001, bound=bound, seed=2**63 - 1)


def test_hard_votes_may_be_more_than_soft_sums_can_hold():
    check_settings(sigma=1.0, n0=100, n=10**8, alpha=0.001)
    check_settings(sigma=1.0, n0=100, n=2**23 - 1, alpha=0.001, bound="bernstein")
    with pytest.raises(Mistake, match=r"^n must be at most 8388607 with the hoeffding bound"):
        check_settings(sigma=1.0, n0=100, n=2**23, alpha=0.001, bound="hoeffding")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("sigma", "0.5", "sigma must be a number, got '0.5'"),
        ("alpha", None, "alpha must be a number, got None"),
        ("n", 100.5, "n must be a whole number, got 100.5"),
        ("n0", "9", "n0 must be a whole number, got '9'"),
    ],
)
def test_settings_of_other_types_are_refused(setting, value, message):
    given = {"sigma": 0.5, "n0": 10, "n": 100, "alpha": 0.001, setting: value}
    with pytest.raises(Mistake, match=f"^{message}$"):
        check_settings(**given)
    check_settings(sigma=np.float32(0.5), n0=np.int64(10), n=np.int32(100), alpha=0.001)
