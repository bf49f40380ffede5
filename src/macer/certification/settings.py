"""The settings and inputs of a certification, checked before anything is sampled."""

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macer.data.value_range import (
    IMAGE_RANGE,
    ValueRange,
    check_size,
    check_values,
    checked_range,
)
from macer.recipes import MOST_VOTES
from macer.smoothing.bounds import Bound, bound_named
from macer.smoothing.tally import MOST_SOFT_SAMPLES
from macer.system.errors import Mistake
from macer.system.typed import wrong

ImageArray = Tensor | NDArray[Any]


def check_settings(
    *,
    sigma: float,
    n0: int,
    n: int,
    alpha: float,
    bound: str = "clopper-pearson",
    beta: float = 1.0,
    seed: int = 0,
) -> None:
    """Refuse settings that make no sense or can never certify anything."""
    numbers: dict[str, object] = {"sigma": sigma, "alpha": alpha, "beta": beta}
    whole: dict[str, object] = {"n0": n0, "n": n, "seed": seed}
    for names, kind, requirement in (
        (numbers, Real, "a number"),
        (whole, Integral, "a whole number"),
    ):
        for name, given in names.items():
            if not isinstance(given, kind):
                raise wrong(name, requirement, given)
    for name, value in (("sigma", sigma), ("beta", beta)):
        if not (value > 0 and np.isfinite(value)):
            raise Mistake(f"{name} must be > 0, got {value}")
    if not 0 < alpha < 1:
        raise Mistake(f"alpha must be between 0 and 1, got {alpha}")
    for name, value in (("n0", n0), ("n", n)):
        if value < 1:
            raise Mistake(f"{name} must be at least 1, got {value}")
        if value > MOST_VOTES:
            raise Mistake(f"{name} must be at most {MOST_VOTES:,}, got {value}")
    if not 0 <= seed < 2**63:
        raise Mistake(f"seed must be in [0, 2⁶³), got {seed}")
    if bound_named(bound).soft and n > MOST_SOFT_SAMPLES:
        raise Mistake(f"n must be at most {MOST_SOFT_SAMPLES} with the {bound} bound, got {n}")
    if n < (least := least_useful_n(bound_named(bound), alpha, n)):
        raise Mistake(
            f"n must be at least {least} to certify anything at alpha {alpha:g} "
            f"with the {bound} bound, got {n}"
        )


def least_useful_n(bound: Bound, alpha: float, n: int = 1) -> int:
    """The least number of samples, from n on, with which the bound can exceed ½."""
    while bound.largest(n, alpha) <= 0.5:
        n += 1
    return n


def are_images(inputs: Tensor, value_range: ValueRange) -> bool:
    """Whether inputs are taken for images: four dimensions, values in [0, 1]."""
    return inputs.ndim == 4 and value_range == IMAGE_RANGE


def as_inputs(
    inputs: ImageArray,
    *,
    sigma: float,
    exact: bool | None = None,
    value_range: ValueRange = IMAGE_RANGE,
) -> Tensor:
    """Images as `as_images` has them; inputs of another shape or range as float32.

    Args:
        value_range: the least and the largest value that is allowed; any finite one if None.
    """
    inputs = as_tensor(inputs)
    if value_range is not IMAGE_RANGE:
        value_range = checked_range(value_range)
    if are_images(inputs, value_range):
        return as_images(inputs, exact=exact)
    if inputs.ndim < 2 or 0 in inputs.shape[1:]:
        raise Mistake(
            "inputs must have the shape (inputs, …) with one value or more for each, "
            f"got {tuple(inputs.shape)}"
        )
    if not inputs.is_floating_point():
        kind = str(inputs.dtype).removeprefix("torch.")
        raise Mistake(
            "inputs must be floats, unless they are uint8 images of the shape (images, channels, "
            f"height, width), got {kind} of the shape {tuple(inputs.shape)}; convert them"
        )
    if exact:
        raise Mistake(
            "exact noise is for 8-bit images, of the shape (images, channels, height, width) and "
            f"in [0, 1], got the shape {tuple(inputs.shape)} and value_range {value_range}; "
            "leave exact out"
        )
    inputs = inputs.detach().float()
    _check_values(inputs, value_range, sigma)
    return inputs


def _check_values(inputs: Tensor, value_range: ValueRange, sigma: float) -> None:
    if inputs.numel():
        low, high = (float(value) for value in inputs.aminmax())
        check_values(low, high, value_range)
        check_size(low, high, sigma)


def as_images(images: ImageArray, *, exact: bool | None = None) -> Tensor:
    """Images as uint8 for exact noise, or as float32 in [0, 1]; anything else is refused.

    uint8 stays as it is, and floats become uint8 if all of them are multiples of 1/255, unless
    exact is False; if it is True, other floats are refused.
    """
    images = as_tensor(images)
    if images.ndim != 4:
        raise Mistake(
            "images must have the shape (images, channels, height, width), "
            f"got {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return images.float() / 255 if exact is False else images
    _check_floats(images)
    grid = None if exact is False else _on_grid(images)
    if exact and grid is None:
        raise Mistake("images must be 8-bit, multiples of 1/255, for exact noise; use exact=False")
    return images.float() if grid is None else grid


def as_tensor(images: object) -> Tensor:
    """Images, which may come as a NumPy array."""
    if isinstance(images, Tensor):
        return images
    if not isinstance(images, np.ndarray):
        kind = type(images).__name__
        raise Mistake(f"images must be a tensor or a NumPy array, got {kind}; convert them")
    native = images.astype(images.dtype.newbyteorder("="))  # a copy, which torch may write to
    try:
        return torch.from_numpy(native)
    except TypeError:
        raise Mistake(f"images must be uint8 or floats, got {images.dtype}; convert them") from None


def _check_floats(images: Tensor) -> None:
    if not images.is_floating_point():
        kind = str(images.dtype).removeprefix("torch.")
        raise Mistake(f"images must be uint8 or floats in [0, 1], got {kind}; convert them")
    low, high = images.aminmax() if images.numel() else (torch.zeros(()), torch.ones(()))
    if not (low >= 0 and high <= 1):  # also when either is NaN
        raise Mistake(
            f"images must have values in [0, 1], got [{low:g}, {high:g}]; "
            "scale them and put normalisation into the model's first layer"
        )


def _on_grid(images: Tensor) -> Tensor | None:
    """255 times the images, as uint8, if they are the multiples of 1/255 nearest in their type.

    float64 images may also be the multiples that float32 rounds to, if they were made from those.
    """
    grid = (images.float() * 255).round().to(torch.uint8)
    multiples = (torch.arange(256, dtype=torch.float64) / 255).to(images.device)
    types = {images.dtype, torch.float32} if images.dtype == torch.float64 else {images.dtype}
    tables = (multiples.to(dtype).to(images.dtype) for dtype in types)
    return grid if any(torch.equal(table[grid.int()], images) for table in tables) else None
