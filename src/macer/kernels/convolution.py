"""Convolutions with their bias, shortcut and ReLU in one kernel, for few channels on a GPU.

Such layers are bound by memory traffic: here each activation is read once and written once, where
separate layers read and write it three times. Tensors are channels last, products bfloat16 with
float32 sums. Pixels are counted in 32 bits, since division in 64 is slow; offsets take 64.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

# (pairs of pixels in a tile, tiles a program works through, stages of loads), by channels; the
# fastest of 54 tried on an H200.
TILES = {16: (64, 16, 3), 32: (64, 4, 1)}


@triton.jit
def _pairs_kernel(
    x, weight, bias, shortcut, y, pairs, height, width,
    CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr, RELU: tl.constexpr,
    BLOCK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A row of the product is two neighbouring pixels, which read four of a line of the image."""
    k = tl.arange(0, 4 * CHANNELS)
    n = tl.arange(0, 2 * CHANNELS)
    taps = weight + k[:, None] * (2 * CHANNELS) + n[None, :]
    above = tl.load(taps)
    level = tl.load(taps + 8 * CHANNELS * CHANNELS)
    below = tl.load(taps + 16 * CHANNELS * CHANNELS)
    offset = tl.load(bias + n % CHANNELS)[None, :] if RELU else 0.0
    for tile in tl.range(0, TILES, num_stages=STAGES):
        m = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        line = m // (width // 2)
        row = line % height
        column = m % (width // 2) * 2 - 1
        at = column[:, None] + (k // CHANNELS)[None, :]
        inside = (at >= 0) & (at < width) & (m < pairs)[:, None]
        start = x + ((line.to(tl.int64) * width + column) * CHANNELS)[:, None] + k[None, :]
        step = width * CHANNELS
        a = tl.load(start - step, mask=inside & (row > 0)[:, None], other=0.0)
        total = tl.dot(a, above)
        a = tl.load(start, mask=inside, other=0.0)
        total = tl.dot(a, level, total)
        a = tl.load(start + step, mask=inside & (row < height - 1)[:, None], other=0.0)
        total = tl.dot(a, below, total) + offset
        where = m.to(tl.int64)[:, None] * (2 * CHANNELS) + n[None, :]
        if SHORTCUT:
            total += tl.load(shortcut + where, mask=(m < pairs)[:, None], other=0.0).to(tl.float32)
        if RELU:
            total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(y + where, total.to(y.dtype.element_ty), mask=(m < pairs)[:, None])


def pairs_weight(weight: Tensor) -> Tensor:
    """The weights (channels, channels, 3, 3) as (3 lines, 4 inputs, 2 outputs) of a pair."""
    channels = len(weight)
    lines = weight.new_zeros(3, 4, channels, 2, channels)
    for pixel in range(2):
        for s in range(3):
            lines[:, pixel + s, :, pixel, :] = weight[:, :, :, s].permute(2, 1, 0)
    return lines.view(12 * channels, 2 * channels)


def pairs_relu(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None) -> Tensor:
    """ReLU(weight ∗ x + bias + shortcut) for 16 or 32 channels in and out and an even width.

    Args:
        x: (images, channels, height, width), channels last, as shortcut is
        weight: of `pairs_weight`
        bias: (channels,) float32
    """
    return _pairs(x, weight, bias, shortcut)


def pairs(x: Tensor, weight: Tensor) -> Tensor:
    """weight ∗ x alone."""
    return _pairs(x, weight, None, None)


def _pairs(x: Tensor, weight: Tensor, bias: Tensor | None, shortcut: Tensor | None) -> Tensor:
    images, channels, height, width = x.shape
    y = torch.empty_like(x)
    pairs = images * height * width // 2
    block, tiles, stages = TILES[channels]
    _pairs_kernel[(triton.cdiv(pairs, block * tiles),)](
        x, weight, weight if bias is None else bias, x if shortcut is None else shortcut, y,
        pairs, height, width,
        CHANNELS=channels, SHORTCUT=shortcut is not None, RELU=bias is not None,
        BLOCK=block, TILES=tiles, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return y


@triton.jit
def _stem_kernel(
    x, weight, bias, y, pixels, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, SIZE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    OUTPUTS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row of the product is a pixel, which reads all taps of all channels at once."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, 32)
    n = tl.arange(0, LANES)
    line = m // out_width
    column = m % out_width * POOL - PADDING
    row = line % out_height * POOL - PADDING
    first = (line // out_height * height + row).to(tl.int64) * width + column
    start = x + (first * CHANNELS)[:, None]
    r, s = k // (SIZE * CHANNELS), k % (SIZE * CHANNELS) // CHANNELS
    tap = (r * width * CHANNELS + k % (SIZE * CHANNELS))[None, :]
    known = (k < SIZE * SIZE * CHANNELS)[None, :] & (m < pixels)[:, None]
    taps = tl.load(weight + k[:, None] * LANES + n[None, :])
    offset = tl.load(bias + n)[None, :]
    best = tl.zeros((BLOCK, LANES), tl.float32)  # the ReLU: no less counts
    for down in tl.static_range(POOL):
        for right in tl.static_range(POOL):
            inside = known
            if PADDING > 0:
                i = row[:, None] + (r + down)[None, :]
                j = column[:, None] + (s + right)[None, :]
                inside = inside & (i >= 0) & (i < height) & (j >= 0) & (j < width)
            step = (down * width + right) * CHANNELS
            a = tl.load(start + (tap + step), mask=inside, other=0.0)
            value = tl.dot(a, taps) + offset
            best = tl.maximum(best, value, propagate_nan=tl.PropagateNan.ALL)
    where = m.to(tl.int64)[:, None] * OUTPUTS + n[None, :]
    keep = (m < pixels)[:, None] & (n < OUTPUTS)[None, :]
    tl.store(y + where, best.to(y.dtype.element_ty), mask=keep)


def stem_weight(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The weights (outputs, channels, size, size) as (32 taps, outputs), padded with zeros."""
    outputs, taps = len(weight), weight[0].numel()
    padded = triton.next_power_of_2(max(outputs, 16))
    columns, biases = weight.new_zeros(32, padded), bias.new_zeros(padded)
    columns[:taps, :outputs] = weight.permute(2, 3, 1, 0).reshape(taps, outputs)
    biases[:outputs] = bias
    return columns, biases


def stem_relu(
    x: Tensor, weight: Tensor, bias: Tensor, *, outputs: int, size: int, padding: int, pool: int
) -> Tensor:
    """ReLU(max_pool2d(weight ∗ x + bias, pool)) for few channels.

    Args:
        x: (images, channels, height, width), channels last
        weight, bias: of `stem_weight`
        size: of the convolution, size × size
        pool: 1 for none
    """
    images, channels, height, width = x.shape
    out_height, out_width = ((n + 2 * padding - size + 1) // pool for n in (height, width))
    y = torch.empty(
        (images, outputs, out_height, out_width),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    pixels = images * out_height * out_width
    block = 128 if pool == 1 else 64  # a warp has 32 rows either way
    _stem_kernel[(triton.cdiv(pixels, block),)](
        x, weight, bias, y, pixels, height, width, out_height, out_width,
        CHANNELS=channels, SIZE=size, PADDING=padding, POOL=pool,
        OUTPUTS=outputs, LANES=weight.shape[1], BLOCK=block, num_warps=block // 32,
    )  # fmt: skip
    return y
