"""Convolutions for which cuDNN is slow, in training on a GPU: 3×3 of 16 or 32 channels, and stems.

    y = W ∗ x,   dx = W′ ∗ dy with W′ the flipped transpose of W,
    dW[o, i, r, s] = Σ over pixels of dy[o] · x[i], shifted by (r − 1, s − 1)

As in `convolution`, a row of a product is two neighbouring pixels, which read four of each line. A
stem, which has no more than 32 taps in all, becomes one product of matrices.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from macer.kernels.convolution import pairs

TYPE = torch.bfloat16  # of images and weights; sums are float32
BLOCK = 64  # pairs of pixels in a tile
PROGRAMS = 132  # that share the sum over pixels of one line; their sums are added in a fixed order


@triton.jit
def _lines_kernel(
    weight, lines, output, input, row, column, CHANNELS: tl.constexpr
):  # fmt: skip
    """What `pairs_weight` lays out, in one launch; the strides say which W it is."""
    r = tl.program_id(0)
    k = tl.arange(0, 4 * CHANNELS)[:, None]
    n = tl.arange(0, 2 * CHANNELS)[None, :]
    s = k // CHANNELS - n // CHANNELS
    at = n % CHANNELS * output + k % CHANNELS * input + r * row + s * column
    taps = tl.load(weight + at, mask=(s >= 0) & (s < 3), other=0.0)
    place = (r * 4 * CHANNELS + k) * (2 * CHANNELS) + n
    tl.store(lines + place, taps.to(lines.dtype.element_ty))


def _lines(weight: Tensor, *, flipped: bool) -> Tensor:
    """W, or its flipped transpose, laid out for `pairs`."""
    channels = len(weight)
    lines = weight.new_empty((12 * channels, 2 * channels), dtype=TYPE)
    output, input, row, column = weight.stride()
    first = weight
    if flipped:
        output, input, row, column = input, output, -row, -column
        first = weight[:, :, 2:, 2:]
    _lines_kernel[(3,)](first, lines, output, input, row, column, CHANNELS=channels)
    return lines


@triton.jit
def _weight_kernel(
    x, dy, partial, pairs, height, width, steps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Products of a line's four inputs with its two outputs, over this program's pairs."""
    k = tl.arange(0, 4 * CHANNELS)
    n = tl.arange(0, 2 * CHANNELS)
    shift = tl.program_id(1) - 1
    total = tl.zeros((4 * CHANNELS, 2 * CHANNELS), tl.float32)
    for step in range(steps):
        m = (tl.program_id(0) * steps + step) * BLOCK + tl.arange(0, BLOCK)
        line = m // (width // 2)
        row = line % height + shift
        column = m % (width // 2) * 2 - 1
        at = column[:, None] + (k // CHANNELS)[None, :]
        inside = (at >= 0) & (at < width) & ((m < pairs) & (row >= 0) & (row < height))[:, None]
        start = ((line + shift).to(tl.int64) * width + column) * CHANNELS
        a = tl.load(x + start[:, None] + k[None, :], mask=inside, other=0.0)
        where = m.to(tl.int64)[:, None] * (2 * CHANNELS) + n[None, :]
        b = tl.load(dy + where, mask=(m < pairs)[:, None], other=0.0)
        total = tl.dot(tl.trans(a), b, total)
    place = partial + (tl.program_id(0) * 3 + tl.program_id(1)) * (8 * CHANNELS * CHANNELS)
    tl.store(place + k[:, None] * (2 * CHANNELS) + n[None, :], total)


def _weight_gradient(x: Tensor, dy: Tensor) -> Tensor:
    """dW (channels, channels, 3, 3) in float32."""
    images, channels, height, width = x.shape
    pairs = images * height * width // 2
    tiles = triton.cdiv(pairs, BLOCK)
    steps = triton.cdiv(tiles, PROGRAMS)
    programs = triton.cdiv(tiles, steps)
    partial = x.new_empty((programs, 3, 4, channels, 2, channels), dtype=torch.float32)
    _weight_kernel[(programs, 3)](
        x, dy, partial, pairs, height, width, steps,
        CHANNELS=channels, BLOCK=BLOCK, num_warps=4 if channels == 16 else 8,
    )  # fmt: skip
    lines = partial.sum(0)
    # A tap s joins input s with the first pixel of a pair and input s + 1 with the second.
    taps = lines[:, :3, :, 0] + lines[:, 1:, :, 1]
    return taps.permute(3, 2, 0, 1)


class NarrowConvolution(torch.autograd.Function):
    """W ∗ x with padding 1 for images of an even width, channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Arguments: (images, channels, height, width) and W, in any type."""
        x = x.to(TYPE).contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        return pairs(x, _lines(weight, flipped=False))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """dx and, unless the network is under attack, dW."""
        x, weight = ctx.saved_tensors
        dy = grad_outputs[0].contiguous(memory_format=torch.channels_last)
        trained = ctx.needs_input_grad[1]
        dw = _weight_gradient(x, dy).to(weight.dtype) if trained else None
        return pairs(dy, _lines(weight, flipped=True)), dw


@triton.jit
def _taps_kernel(
    x, taps, pixels, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, SIZE: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, 32)
    line = m // out_width
    r, s = k // (SIZE * CHANNELS), k % (SIZE * CHANNELS) // CHANNELS
    i = (line % out_height - PADDING)[:, None] + r[None, :]
    j = (m % out_width - PADDING)[:, None] + s[None, :]
    inside = (
        (i >= 0) & (i < height) & (j >= 0) & (j < width) & (k < SIZE * SIZE * CHANNELS)[None, :]
    )
    start = (line // out_height).to(tl.int64)[:, None] * (height * width)
    at = (start + i * width + j) * CHANNELS + (k % CHANNELS)[None, :]
    values = tl.load(x + at, mask=inside & (m < pixels)[:, None], other=0.0)
    place = taps + m.to(tl.int64)[:, None] * 32 + k[None, :]
    tl.store(place, values.to(taps.dtype.element_ty), mask=(m < pixels)[:, None])


def stem(x: Tensor, weight: Tensor, *, padding: int) -> Tensor:
    """W ∗ x for square W of at most 32 taps in all, of images that need no gradient."""
    images, channels, height, width = x.shape
    outputs, _, size, _ = weight.shape
    out_height, out_width = (n + 2 * padding - size + 1 for n in (height, width))
    pixels = images * out_height * out_width
    taps = x.new_empty((pixels, 32), dtype=TYPE)
    _taps_kernel[(triton.cdiv(pixels, 128),)](
        x.contiguous(memory_format=torch.channels_last), taps, pixels,
        height, width, out_height, out_width,
        CHANNELS=channels, SIZE=size, PADDING=padding, BLOCK=128,
    )  # fmt: skip
    rows = weight.permute(0, 2, 3, 1).reshape(outputs, -1)
    y = F.linear(taps, F.pad(rows, (0, 32 - rows.shape[1])).to(TYPE))
    return y.view(images, out_height, out_width, outputs).permute(0, 3, 1, 2)
