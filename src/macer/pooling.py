"""Max pooling over 2×2 pixels on a GPU, each activation read once and written once."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

TILE = 2048  # activations that a program writes: two loads of 16 bytes a thread from each pixel


@triton.jit
def _halved_kernel(
    x, y, pixels, height, width,
    CHANNELS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.arange(0, LANES)
    line, column = m // (width // 2), m % (width // 2)
    line = line // (height // 2) * height + line % (height // 2) * 2
    start = x + ((line.to(tl.int64) * width + column * 2) * CHANNELS)[:, None] + n[None, :]
    keep = (m < pixels)[:, None] & (n < CHANNELS)[None, :]
    below = start + width * CHANNELS
    a = tl.load(start, mask=keep, other=0.0)
    b = tl.load(start + CHANNELS, mask=keep, other=0.0)
    c = tl.load(below, mask=keep, other=0.0)
    d = tl.load(below + CHANNELS, mask=keep, other=0.0)
    level = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    under = tl.maximum(c, d, propagate_nan=tl.PropagateNan.ALL)
    best = tl.maximum(level, under, propagate_nan=tl.PropagateNan.ALL).to(y.dtype.element_ty)
    tl.store(y + m.to(tl.int64)[:, None] * CHANNELS + n[None, :], best, mask=keep)


def halved(x: Tensor) -> Tensor:
    """max_pool2d(x, 2); torch's where channels are no multiple of 8, as loads of 16 bytes need.

    Args:
        x: (images, channels, height, width), channels last
    """
    images, channels, height, width = x.shape
    if channels % 8:
        return F.max_pool2d(x, 2)
    y = torch.empty(
        (images, channels, height // 2, width // 2),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    pixels = images * (height // 2) * (width // 2)
    lanes = triton.next_power_of_2(channels)
    block = max(1, TILE // lanes)
    _halved_kernel[(triton.cdiv(pixels, block),)](
        x.contiguous(memory_format=torch.channels_last), y, pixels, height, width,
        CHANNELS=channels, LANES=lanes, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return y
