"""3×3 convolutions with their bias, shortcut and ReLU in one kernel, for few channels on a GPU.

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
    CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr,
    BLOCK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A row of the product is two neighbouring pixels, which read four of a line of the image."""
    k = tl.arange(0, 4 * CHANNELS)
    n = tl.arange(0, 2 * CHANNELS)
    taps = weight + k[:, None] * (2 * CHANNELS) + n[None, :]
    above = tl.load(taps)
    level = tl.load(taps + 8 * CHANNELS * CHANNELS)
    below = tl.load(taps + 16 * CHANNELS * CHANNELS)
    offset = tl.load(bias + n % CHANNELS)[None, :]
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
        total = tl.maximum(total, 0.0).to(y.dtype.element_ty)
        tl.store(y + where, total, mask=(m < pairs)[:, None])


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
    images, channels, height, width = x.shape
    y = torch.empty_like(x)
    pairs = images * height * width // 2
    block, tiles, stages = TILES[channels]
    _pairs_kernel[(triton.cdiv(pairs, block * tiles),)](
        x, weight, bias, x if shortcut is None else shortcut, y, pairs, height, width,
        CHANNELS=channels, SHORTCUT=shortcut is not None,
        BLOCK=block, TILES=tiles, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return y


@triton.jit
def _stem_kernel(
    x, weight, bias, y, pixels, height, width, outputs,
    CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row of the product is a pixel, which reads all nine taps of all channels at once."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, 32)
    n = tl.arange(0, OUTPUTS)
    line, column = m // width, m % width
    r, s = k // (3 * CHANNELS), k % (3 * CHANNELS) // CHANNELS
    row = (line % height)[:, None] + r[None, :] - 1
    at = column[:, None] + s[None, :] - 1
    inside = (at >= 0) & (at < width) & (row >= 0) & (row < height)
    inside = inside & (k < 9 * CHANNELS)[None, :] & (m < pixels)[:, None]
    tap = ((r - 1) * width - 1) * CHANNELS + k % (3 * CHANNELS)
    start = x + (m.to(tl.int64) * CHANNELS)[:, None]
    a = tl.load(start + tap[None, :], mask=inside, other=0.0)
    total = tl.dot(a, tl.load(weight + k[:, None] * OUTPUTS + n[None, :]))
    total += tl.load(bias + n)[None, :]
    where = m.to(tl.int64)[:, None] * outputs + n[None, :]
    keep = (m < pixels)[:, None] & (n < outputs)[None, :]
    tl.store(y + where, tl.maximum(total, 0.0).to(y.dtype.element_ty), mask=keep)


def stem_weight(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The weights (outputs, channels, 3, 3) as (32 taps, outputs), both padded with zeros."""
    outputs, channels = weight.shape[:2]
    padded = triton.next_power_of_2(max(outputs, 16))
    taps, biases = weight.new_zeros(32, padded), bias.new_zeros(padded)
    taps[: 9 * channels, :outputs] = weight.permute(2, 3, 1, 0).reshape(9 * channels, outputs)
    biases[:outputs] = bias
    return taps, biases


def stem_relu(x: Tensor, weight: Tensor, bias: Tensor, *, outputs: int) -> Tensor:
    """ReLU(weight ∗ x + bias) for at most three channels.

    Args:
        x: (images, channels, height, width), channels last
        weight, bias: of `stem_weight`
    """
    images, channels, height, width = x.shape
    y = torch.empty(
        (images, outputs, height, width),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    pixels = images * height * width
    _stem_kernel[(triton.cdiv(pixels, 128),)](
        x, weight, bias, y, pixels, height, width, outputs,
        CHANNELS=channels, OUTPUTS=weight.shape[1], BLOCK=128, num_warps=4,
    )  # fmt: skip
    return y
