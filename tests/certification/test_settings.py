"""What settings and images a certification takes, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from macer.certification.settings import as_images, as_inputs, check_settings
from macer.system.errors import Mistake

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


@pytest.mark.parametrize("value_range", [(0.0, 1.0), (0, 1), [0, 1], np.array([0.0, 1.0])])
@pytest.mark.parametrize("exact", [None, True, False])
def test_four_dimensions_in_the_unit_interval_are_images(exact, value_range):
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    for given in (images, images / 255, images.numpy()):
        inputs = as_inputs(given, sigma=0.5, exact=exact, value_range=value_range)
        expected = as_images(given, exact=exact)
        assert torch.equal(inputs, expected) and inputs.dtype == expected.dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_other_inputs_are_float32_whatever_they_are(dtype):
    flat = (torch.arange(16) / 255).view(2, 8).to(dtype)
    for inputs, value_range in (
        (flat, (0, 1)),
        (flat, None),
        (flat[:, None], (0, 1)),
        (flat.view(2, 1, 2, 4), None),
        (flat.view(2, 1, 2, 4) - 0.5, (-0.5, 0.5)),
        (1000 * flat, None),
        (flat[:0], None),
    ):
        taken = as_inputs(inputs, sigma=0.5, value_range=value_range)
        assert taken.dtype == torch.float32 and torch.equal(taken, inputs.float())


def test_the_ends_of_a_range_belong_to_it():
    inputs = torch.tensor([[-3.0, 5.0]])
    assert torch.equal(as_inputs(inputs, sigma=1.0, value_range=(-3, 5)), inputs)


# refusal


@pytest.mark.parametrize(
    ("inputs", "settings", "message"),
    [
        (torch.zeros(3), {}, "inputs must have the shape (inputs, …) with one value or more for "
                             "each, got (3,)"),
        (torch.zeros(3, 0), {}, "one value or more for each, got (3, 0)"),
        (torch.zeros(()), {}, "one value or more for each, got ()"),
        (torch.zeros(1, 3, dtype=torch.uint8), {}, "inputs must be floats, unless they are uint8 "
         "images of the shape (images, channels, height, width), got uint8 of the shape (1, 3)"),
        (torch.zeros(1, 1, 2, 2, dtype=torch.uint8), {"value_range": None}, "got uint8"),
        (torch.zeros(1, 3, dtype=torch.int64), {"value_range": None}, "got int64"),
        (torch.zeros(1, 3, dtype=torch.bool), {"value_range": None}, "got bool"),
        (torch.tensor([[0.0, math.nan]]), {"value_range": None}, "inputs must have finite float32"),
        (torch.tensor([[0.0, math.inf]]), {"value_range": None}, "values, got [0, inf]"),
        (np.array([[0.0, -1e300]]), {"value_range": None}, "values, got [-inf, 0]"),
        (torch.tensor([[0.0, 1.01]]), {}, "inputs must have values in [0, 1], got [0, 1.01]; "
         "scale them, or state their value_range, None for any"),
        (torch.tensor([[-2.0, 0.0]]), {"value_range": (-1, 1)}, "values in [-1, 1], got [-2, 0]"),
        (torch.zeros(1, 1, 2, 2) - 1, {"value_range": (0, 2)}, "values in [0, 2], got [-1, -1]"),
        (torch.zeros(1, 3), {"exact": True}, "exact noise is for 8-bit images, of the shape "
         "(images, channels, height, width) and in [0, 1], got the shape (1, 3) and value_range "
         "(0.0, 1.0); leave exact out"),
        (torch.zeros(1, 1, 2, 2), {"exact": True, "value_range": None}, "and value_range None; "),
        (torch.tensor([[1.7e9]]), {"value_range": None}, "inputs must be at most 131,072 sigma in "
         "size, since float32 rounds the noise away from larger ones, got 1.7e+09 with sigma 0.5"),
        (torch.tensor([[-70_000.0]]), {"value_range": None}, "got 70000 with sigma 0.5; centre or"),
    ],
)  # fmt: skip
def test_inputs_that_cannot_be_certified_are_refused(inputs, settings, message):
    with pytest.raises(Mistake) as refusal:
        as_inputs(inputs, **{"sigma": 0.5} | settings)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "value_range", [0.5, (0,), (0, 1, 2), (1, 0), (0, 0), (0, math.inf), (math.nan, 1), "ab"]
)
def test_what_is_no_range_is_refused(value_range):
    with pytest.raises(Mistake, match=r"^value_range must be None or two numbers, the least and"):
        as_inputs(torch.zeros(1, 1, 2, 2), sigma=0.5, value_range=value_range)


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
