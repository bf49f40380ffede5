"""A network's first convolution, of few inputs, on a GPU, for certification and for training.

    y = W ∗ x,  at most 3 channels and at most 32 weights per output

cuDNN is slow at so few channels: it converts the images to another layout and back. Here the
convolution is one product of matrices. One row of it is one output pixel. It reads all of its
inputs at once, filled up with zeros to 32, which is what tensor cores take; for 3×3 of 3 channels:

    column        j−1           j            j+1
              ┌────────────┬────────────┬────────────┐
    line i−1  │  0  1  2   │  3  4  5   │  6  7  8   │     the number is k, the column of the
    line i    │  9 10 11   │ 12 13 14   │ 15 16 17   │     product's left matrix: values of a
    line i+1  │ 18 19 20   │ 21 22 23   │ 24 25 26   │     line are side by side in memory
              └────────────┴────────────┴────────────┘
                                     27 … 31 are 0         k = (r · size + s) · channels + channel

Unlike conv3x3.py's pairs, a row is a single pixel: its inputs fill the product already. Tensors
are channels last, products are bfloat16 with float32 sums.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

DTYPE = torch.bfloat16  # of inputs and weights in training


@triton.jit
def _stem_kernel(
    x, weight, bias, y, pixels, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, SIZE: tl.constexpr, PADDING: tl.constexpr, POOL: tl.constexpr,
    OUTPUTS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows m are pixels after pooling; each is the largest of POOL × POOL products.

    Pixels are counted in 32 bits, since division in 64 is slow; offsets take 64.
    """
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
    best = tl.zeros((BLOCK, LANES), tl.float32)  # the ReLU: nothing below 0 is the largest
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
    place = m.to(tl.int64)[:, None] * OUTPUTS + n[None, :]
    keep = (m < pixels)[:, None] & (n < OUTPUTS)[None, :]
    tl.store(y + place, best.to(y.dtype.element_ty), mask=keep)


def stem_weights(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """(outputs, channels, size, size) as a matrix of 32 rows; columns of 0 up to a power of 2."""
    outputs, taps = len(weight), weight[0].numel()
    lanes = triton.next_power_of_2(max(outputs, 16))
    matrix, biases = weight.new_zeros(32, lanes), bias.new_zeros(lanes)
    matrix[:taps, :outputs] = weight.permute(2, 3, 1, 0).reshape(taps, outputs)
    biases[:outputs] = bias
    return matrix, biases


def stem_relu(
    x: Tensor, weight: Tensor, bias: Tensor, *, outputs: int, size: int, padding: int, pool: int
) -> Tensor:
    """ReLU(max_pool2d(W ∗ x + bias, pool)).

    Args:
        x: (images, channels, height, width), channels last
        weight, bias: of `stem_weights`
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


@triton.jit
def _taps_kernel(
    x, taps, pixels, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, SIZE: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The 32 inputs of each output pixel, written out: training needs them twice."""
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
    """W ∗ x in training, of images that need no gradient; torch differentiates the product.

    Args:
        x: (images, channels, height, width)
        weight: (outputs, channels, size, size)
    """
    images, channels, height, width = x.shape
    outputs, _, size, _ = weight.shape
    out_height, out_width = (n + 2 * padding - size + 1 for n in (height, width))
    pixels = images * out_height * out_width
    taps = x.new_empty((pixels, 32), dtype=DTYPE)
    _taps_kernel[(triton.cdiv(pixels, 128),)](
        x.contiguous(memory_format=torch.channels_last), taps, pixels,
        height, width, out_height, out_width,
        CHANNELS=channels, SIZE=size, PADDING=padding, BLOCK=128,
    )  # fmt: skip
    rows = weight.permute(0, 2, 3, 1).reshape(outputs, -1)
    y = F.linear(taps, F.pad(rows, (0, 32 - rows.shape[1])).to(DTYPE))
    return y.view(images, out_height, out_width, outputs).permute(0, 3, 1, 2)
