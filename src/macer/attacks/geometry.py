"""Norms, balls and boxes of image-like vectors: the last three dimensions are one vector."""

import torch
from torch import Tensor

_VECTOR = (-3, -2, -1)  # channels, height, width

# A perturbation is shortened by each of these shares in turn, from nothing to all of it, until
# rounding no longer moves it out of its ball.
_SHARES = (0.0, 2.0**-22, 2.0**-18, 2.0**-14, 2.0**-10, 2.0**-6, 1.0)

# The relative error of a float64 norm over a million pixels is about 2⁻⁴⁶ in any order of its sum.
_NORM_MARGIN = 1.0 - 2.0**-44


def norm(vectors: Tensor) -> Tensor:
    """‖v‖₂ of each vector; the reduced dimensions stay with size 1."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=_VECTOR, keepdim=True)
    return norms


def unit(vectors: Tensor) -> Tensor:
    """v/‖v‖₂ of each vector; 0 where v is 0 or not finite."""
    largest = vectors.abs().amax(dim=_VECTOR, keepdim=True)
    usable = (largest > 0) & largest.isfinite()  # False for NaN
    # First divided by its largest entry: the squares of a saturated network's gradient underflow.
    scaled = torch.where(usable, vectors / torch.where(usable, largest, 1.0), 0.0)
    return scaled / torch.where(usable, norm(scaled), 1.0)


def in_box(images: Tensor, delta: Tensor) -> Tensor:
    """δ changed so that x + δ is in [0, 1]."""
    return (images + delta).clamp(0, 1) - images


def in_ball(delta: Tensor, epsilon: float | Tensor) -> Tensor:
    """δ scaled down to norm ε where it is longer; if x is in the box, x + δ stays in it."""
    return torch.where(norm(delta) > epsilon, epsilon * unit(delta), delta)


def rounded_inside(images: Tensor, delta: Tensor, epsilon: Tensor) -> Tensor:
    """x + δ in floating point; δ is shortened where rounding moves the sum out of the ball.

    Args:
        epsilon: (images, 1, 1, 1) float64.
    """
    result = images
    outside = torch.ones_like(epsilon, dtype=torch.bool)
    for share in _SHARES:
        result = torch.where(outside, images + (1 - share) * delta, result)
        outside = norm(result.double() - images.double()) > epsilon * _NORM_MARGIN
    return result


def to_grid(pixels: Tensor, delta: Tensor) -> Tensor:
    """The 8-bit image farthest along δ whose distance from x is at most ‖δ‖₂.

    d(t) = clamp(round(255(x + tδ)), 0, 255) − 255x;  ‖d(t)‖₂ grows with t, so t is bisected.

    Plain rounding could leave the ball, or make 0 of a δ that is below half a level everywhere.
    For a δ spread evenly over 28×28 pixels, 99.9% of its length remain at norm 1, 99% at 0.25 and
    78% at 0.05; over 3×224×224 pixels 90% remain at 1 and 67% at 0.5.

    Args:
        pixels: 255x, (images, channels, height, width) uint8.
        delta: float64, for images in [0, 1].
    """
    x, step = pixels.double(), 255 * delta
    reach, largest = norm(step), step.abs().amax(dim=_VECTOR, keepdim=True)

    def rounded(t: Tensor) -> Tensor:
        return (x + t * step).round().clamp(0, 255)

    inner = torch.zeros_like(reach)
    # At this t the largest entry alone is longer than the reach, or every pixel is clamped.
    outer = (reach + 1) / largest.clamp(min=1e-9)
    for _ in range(40):
        t = (inner + outer) / 2
        inside = norm(rounded(t) - x) <= reach
        inner, outer = torch.where(inside, t, inner), torch.where(inside, outer, t)
    return rounded(inner).to(torch.uint8)
