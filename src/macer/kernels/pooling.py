"""Max pooling over 2×2 pixels on a GPU, each activation read once and written once."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

TILE = 2048  # activations that a program writes: per thread, two loads of 16 bytes of each pixel


@triton.jit
def _window(
    m, pixels, height, width, CHANNELS: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """For output pixels m: offsets of the window's upper left input, of the output, and a mask."""
    n = tl.arange(0, LANES)
    line, column = m // (width // 2), m % (width // 2)
    line = line // (height // 2) * height + line % (height // 2) * 2
    start = ((line.to(tl.int64) * width + column * 2) * CHANNELS)[:, None] + n[None, :]
    place = m.to(tl.int64)[:, None] * CHANNELS + n[None, :]
    # A power of 2 of lanes may be more than there are channels.
    return start, place, (m < pixels)[:, None] & (n < CHANNELS)[None, :]


@triton.jit
def _largest(a, b, c, d):
    """The largest of four; NaN if one of them is."""
    level = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    under = tl.maximum(c, d, propagate_nan=tl.PropagateNan.ALL)
    return tl.maximum(level, under, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _max_pool_kernel(
    x, y, pixels, height, width,
    RELU: tl.constexpr, CHANNELS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest of each window, and of 0 with RELU; rows m are output pixels."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start, place, keep = _window(m, pixels, height, width, CHANNELS, LANES)
    start += x
    below = start + width * CHANNELS
    a = tl.load(start, mask=keep, other=0.0)
    b = tl.load(start + CHANNELS, mask=keep, other=0.0)
    c = tl.load(below, mask=keep, other=0.0)
    d = tl.load(below + CHANNELS, mask=keep, other=0.0)
    best = _largest(a, b, c, d)
    if RELU:
        best = tl.maximum(best, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + place, best.to(y.dtype.element_ty), mask=keep)


@triton.jit
def _max_pool_gradient_kernel(
    x, dy, dx, pixels, height, width,
    CHANNELS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dy goes to the first of the four that is the largest, if it is > 0: the ReLU's gradient."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start, place, keep = _window(m, pixels, height, width, CHANNELS, LANES)
    step = width * CHANNELS
    a = tl.load(x + start, mask=keep, other=0.0)
    b = tl.load(x + start + CHANNELS, mask=keep, other=0.0)
    c = tl.load(x + start + step, mask=keep, other=0.0)
    d = tl.load(x + start + step + CHANNELS, mask=keep, other=0.0)
    best = _largest(a, b, c, d)
    g = tl.load(dy + place, mask=keep, other=0.0)
    nothing = tl.zeros_like(g)
    g = tl.where(best > 0, g, nothing)
    tl.store(dx + start, tl.where(a == best, g, nothing), mask=keep)
    g = tl.where(a == best, nothing, g)
    tl.store(dx + start + CHANNELS, tl.where(b == best, g, nothing), mask=keep)
    g = tl.where(b == best, nothing, g)
    tl.store(dx + start + step, tl.where(c == best, g, nothing), mask=keep)
    g = tl.where(c == best, nothing, g)
    tl.store(dx + start + step + CHANNELS, tl.where(d == best, g, nothing), mask=keep)


def _launch(kernel: Any, x: Tensor, *others: Tensor, **options: bool) -> None:
    """Run a kernel with one row of a tile for each output pixel."""
    images, channels, height, width = x.shape
    pixels = images * (height // 2) * (width // 2)
    lanes = triton.next_power_of_2(channels)
    block = max(1, TILE // lanes)
    kernel[(triton.cdiv(pixels, block),)](
        x, *others, pixels, height, width,
        CHANNELS=channels, LANES=lanes, BLOCK=block, num_warps=4, **options,
    )  # fmt: skip


def _empty_output(x: Tensor) -> Tensor:
    """Memory for images of half the height and width, channels last."""
    images, channels, height, width = x.shape
    return torch.empty(
        (images, channels, height // 2, width // 2),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip


def max_pool2x2(x: Tensor) -> Tensor:
    """max_pool2d(x, 2), by torch where the channels are no multiple of 8.

    Our kernel loads 16 bytes at once, 8 channels in bf16.

    Args:
        x: (images, channels, height, width), channels last
    """
    if x.shape[1] % 8:
        return F.max_pool2d(x, 2)
    y = _empty_output(x)
    _launch(_max_pool_kernel, x.contiguous(memory_format=torch.channels_last), y, RELU=False)
    return y


class MaxPool2x2ReLU(torch.autograd.Function):
    """ReLU(max_pool2d(x, 2)) in training, for images of even height and width, channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Argument: (images, channels, height, width), the channels a multiple of 8."""
        x = x.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x)
        y = _empty_output(x)
        _launch(_max_pool_kernel, x, y, RELU=True)
        return y

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """dx."""
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        dy = grad_outputs[0].to(x.dtype).contiguous(memory_format=torch.channels_last)
        _launch(_max_pool_gradient_kernel, x, dy, dx)
        return dx
