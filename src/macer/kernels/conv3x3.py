"""3×3 convolutions of 16 or 32 channels on a GPU, for certification and for training.

    y = W ∗ x,   dx = W′ ∗ dy with W′ the flipped transpose of W,
    dW[o, i, r, s] = Σ over pixels of dy[o] · x[i], shifted by (r − 1, s − 1)

Such layers are bound by memory traffic. For 8,192 images of 16 channels an H200 would read and
write the activations once in .13 ms; this kernel takes .27, cuDNN 1.09. In certification it adds
the bias and the shortcut and takes the ReLU too. Tensors are channels last, products are bfloat16
with float32 sums.

The convolution is a product of matrices. One row of it is a *pair*: two neighbouring pixels of a
line, 2j and 2j + 1. The two outputs read four inputs of each of three lines:

    column      2j−1     2j     2j+1    2j+2
              ┌───────┬───────┬───────┬───────┐
    line i−1  │ in 0  │ in 1  │ in 2  │ in 3  │
              ├───────┼───────┼───────┼───────┤     in 0 … in 3 of one line are side by side in
    line i    │ in 0  │ in 1  │ in 2  │ in 3  │     memory: one load of 4C values, C the channels.
              ├───────┼───────┼───────┼───────┤     Pixels outside of the image are loaded as 0.
    line i+1  │ in 0  │ in 1  │ in 2  │ in 3  │
              └───────┴───────┴───────┴───────┘
               ╰─────── out 0 ───────╯               out 0 is pixel (i, 2j), the place of in 1
                       ╰─────── out 1 ───────╯       out 1 is pixel (i, 2j+1), the place of in 2

So each line r has a matrix of 4C × 2C weights, and the three of them together are 12C × 2C. With
W[r, s] the C × C weights of the tap in line r and column s, inputs down and outputs across:

                 out 0     out 1
              ┌─────────┬─────────┐
    in 0      │ W[r, 0] │    0    │       y of a pair  =  Σ over r of
    in 1      │ W[r, 1] │ W[r, 0] │           (4C inputs of line i + r − 1) · (this matrix),
    in 2      │ W[r, 2] │ W[r, 1] │
    in 3      │    0    │ W[r, 2] │       which is 2C values, side by side in memory too
              └─────────┴─────────┘

A quarter of the products are by 0. In return an output takes 6 loads of a pixel instead of 9, one
per tap. With a tap at a time a ResNet-110 took 291,119 samples/s through this kernel; with pairs,
and with our stem and projections, which came at the same time, 345,855.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# (pairs in a tile, tiles that a program works through, stages of loads), by channels; the fastest
# of 54 that were tried on an H200.
TILES = {16: (64, 16, 3), 32: (64, 4, 1)}

# Of the gradient of W:
BLOCK = 64  # pairs in a tile
PROGRAMS = 132  # share the sum over the pairs; their partial sums are added in a fixed order

DTYPE = torch.bfloat16  # of activations and weights in training


@triton.jit
def _pair_weights_kernel(
    weight, matrices, output, input, row, column, CHANNELS: tl.constexpr
):  # fmt: skip
    """One of the three matrices; output, input, row and column are the strides of W."""
    r = tl.program_id(0)
    k = tl.arange(0, 4 * CHANNELS)[:, None]
    n = tl.arange(0, 2 * CHANNELS)[None, :]
    s = k // CHANNELS - n // CHANNELS  # input pixel − output pixel, see the drawing
    at = n % CHANNELS * output + k % CHANNELS * input + r * row + s * column
    taps = tl.load(weight + at, mask=(s >= 0) & (s < 3), other=0.0)
    place = (r * 4 * CHANNELS + k) * (2 * CHANNELS) + n
    tl.store(matrices + place, taps.to(matrices.dtype.element_ty))


def pair_weights(weight: Tensor, dtype: torch.dtype, *, flipped: bool = False) -> Tensor:
    """The weights (C, C, 3, 3), or their flipped transpose, as the matrices 12C × 2C above."""
    channels = len(weight)
    matrices = weight.new_empty((12 * channels, 2 * channels), dtype=dtype)
    output, input, row, column = weight.stride()
    first = weight
    if flipped:  # read backwards from the last tap
        output, input, row, column = input, output, -row, -column
        first = weight[:, :, 2:, 2:]
    _pair_weights_kernel[(3,)](first, matrices, output, input, row, column, CHANNELS=channels)
    return matrices


@triton.jit
def _conv3x3_kernel(
    x, weight, bias, shortcut, y, pairs, height, width,
    CHANNELS: tl.constexpr, SHORTCUT: tl.constexpr, RELU: tl.constexpr,
    BLOCK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Rows m of the product are pairs, k counts a line's 4C inputs and n the 2C outputs.

    Pixels are counted in 32 bits, since division in 64 is slow; offsets take 64.
    """
    k = tl.arange(0, 4 * CHANNELS)
    n = tl.arange(0, 2 * CHANNELS)
    # The weights are loaded once for all tiles of the program.
    taps = weight + k[:, None] * (2 * CHANNELS) + n[None, :]
    above = tl.load(taps)
    level = tl.load(taps + 8 * CHANNELS * CHANNELS)
    below = tl.load(taps + 16 * CHANNELS * CHANNELS)
    offset = tl.load(bias + n % CHANNELS)[None, :] if RELU else 0.0
    for tile in tl.range(0, TILES, num_stages=STAGES):
        m = (tl.program_id(0) * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        line = m // (width // 2)  # of all images, one below the other
        row = line % height  # of its image
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
        place = m.to(tl.int64)[:, None] * (2 * CHANNELS) + n[None, :]
        if SHORTCUT:
            total += tl.load(shortcut + place, mask=(m < pairs)[:, None], other=0.0).to(tl.float32)
        if RELU:
            total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(y + place, total.to(y.dtype.element_ty), mask=(m < pairs)[:, None])


def conv3x3_relu(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None) -> Tensor:
    """ReLU(W ∗ x + bias + shortcut), for an even width.

    Args:
        x: (images, channels, height, width), channels last, as shortcut is
        weight: W's `pair_weights`
        bias: (channels,) float32
    """
    return _launch_conv3x3(x, weight, bias, shortcut)


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """W ∗ x alone; the arguments are those of `conv3x3_relu`."""
    return _launch_conv3x3(x, weight, None, None)


def _launch_conv3x3(
    x: Tensor, weight: Tensor, bias: Tensor | None, shortcut: Tensor | None
) -> Tensor:
    images, channels, height, width = x.shape
    y = torch.empty_like(x)
    pairs = images * height * width // 2
    block, tiles, stages = TILES[channels]
    # A tensor that is not there is replaced by another, which the kernel does not read.
    _conv3x3_kernel[(triton.cdiv(pairs, block * tiles),)](
        x, weight, weight if bias is None else bias, x if shortcut is None else shortcut, y,
        pairs, height, width,
        CHANNELS=channels, SHORTCUT=shortcut is not None, RELU=bias is not None,
        BLOCK=block, TILES=tiles, STAGES=stages, num_warps=4,
    )  # fmt: skip
    return y


@triton.jit
def _weight_gradient_kernel(
    x, dy, partial, pairs, height, width, steps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Sums of (a line's 4C inputs)ᵀ · (2C gradients), over this program's pairs; a line each."""
    k = tl.arange(0, 4 * CHANNELS)
    n = tl.arange(0, 2 * CHANNELS)
    shift = tl.program_id(1) - 1  # the line above, the pair's own, the one below
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
        place = m.to(tl.int64)[:, None] * (2 * CHANNELS) + n[None, :]
        b = tl.load(dy + place, mask=(m < pairs)[:, None], other=0.0)
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
    _weight_gradient_kernel[(programs, 3)](
        x, dy, partial, pairs, height, width, steps,
        CHANNELS=channels, BLOCK=BLOCK, num_warps=4 if channels == 16 else 8,
    )  # fmt: skip
    matrices = partial.sum(0)
    # W[r, s] stands twice in its matrix: at (in s, out 0) and at (in s + 1, out 1).
    taps = matrices[:, :3, :, 0] + matrices[:, 1:, :, 1]
    return taps.permute(3, 2, 0, 1)


class Conv3x3(torch.autograd.Function):
    """W ∗ x with padding 1 in training, for images of an even width, channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Arguments: (images, channels, height, width) and W, in any type."""
        x = x.to(DTYPE).contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        return conv3x3(x, pair_weights(weight, DTYPE))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """dx and dW; an attack on the network wants no dW."""
        x, weight = ctx.saved_tensors
        dy = grad_outputs[0].contiguous(memory_format=torch.channels_last)
        trained = ctx.needs_input_grad[1]
        dw = _weight_gradient(x, dy).to(weight.dtype) if trained else None
        return conv3x3(dy, pair_weights(weight, DTYPE, flipped=True)), dw
