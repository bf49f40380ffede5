"""Noisy copies on a GPU: one kernel writes image plus noise in the network's type and layout.

The random bits are those of NumPy's Philox-4×64 generator, so that a stream has the same bits on
every device. Exact noise is therefore the same integers as on a CPU.

A chunk is a number of copies of one image with the noise of one stream. A grid's second axis is the
chunks, its first one the counters of a stream; each counter gives four draws, one per value.

[Salmon+11]  Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

BITS = 62  # bits of a draw that are compared with thresholds
BLOCK = 256  # counters of Philox that a program handles, four draws each


@triton.jit
def _philox(counter, chunk, image, key0, key1):
    """Four 64-bit draws of counter (counter, 0, chunk, image).                [Salmon+11]"""
    c0 = counter.to(tl.uint64)
    c1 = tl.zeros_like(c0)
    c2 = tl.zeros_like(c0) + chunk.to(tl.uint64)
    c3 = tl.zeros_like(c0) + image.to(tl.uint64)
    k0 = key0.to(tl.uint64)
    k1 = key1.to(tl.uint64)
    m0 = tl.full((), 0xD2E7470EE14C6C93, tl.uint64)
    m1 = tl.full((), 0xCA5A826395121157, tl.uint64)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(m0 + tl.zeros_like(c0), c0), m0 * c0
        high1, low1 = tl.umulhi(m1 + tl.zeros_like(c2), c2), m1 * c2
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
        k1 += tl.full((), 0xBB67AE8584CAA73B, tl.uint64)
    return c0, c1, c2, c3


@triton.jit
def _chunk_draws(slots, numbers, images, key0, key1, row_size, chunk_size, BLOCK: tl.constexpr):
    """This program's draws and counters, and the offsets of its chunk's image and copies."""
    place = tl.program_id(1)
    counter = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    draws = _philox(
        counter + 1, tl.load(numbers + place), tl.load(images + place),
        tl.load(key0), tl.load(key1),
    )  # fmt: skip
    return draws, counter, tl.load(slots + place) * row_size, place.to(tl.int64) * chunk_size


@triton.jit
def _exact_lane(
    raw, lane, positions, inside, pixels, out, flags, thresholds, floats, row_size,
    COUNT: tl.constexpr, STEPS: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Pixel + D for the first, second, … draw of each counter; flags rows with an undecided D."""
    u = (raw >> SHIFT).to(tl.int64)
    rank = tl.zeros_like(lane)
    step = 1 << (STEPS - 1)
    for _ in tl.static_range(STEPS):  # the number of thresholds below U, by bisection
        trial = rank + step
        valid = trial <= COUNT
        below = tl.load(thresholds + tl.minimum(trial, COUNT) - 1) < u
        rank = tl.where(valid & below, trial, rank)
        step = step // 2
    undecided = tl.load(thresholds + tl.minimum(rank, COUNT - 1)) == u
    pixel = tl.load(pixels + positions % row_size, mask=inside, other=0).to(tl.int32)
    value = tl.load(floats + pixel + rank, mask=inside, other=0.0)
    tl.store(out + positions, value.to(out.dtype.element_ty), mask=inside)
    ones = tl.full(lane.shape, 1, tl.int32)
    tl.store(flags + positions // row_size, ones, mask=inside & undecided)


@triton.jit
def _exact_kernel(
    pixels, slots, numbers, images, out, flags, thresholds, floats,
    key0, key1, row_size, chunk_size,
    COUNT: tl.constexpr, STEPS: tl.constexpr, SHIFT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    draws, counter, image, copies = _chunk_draws(
        slots, numbers, images, key0, key1, row_size, chunk_size, BLOCK
    )
    pixels += image
    out += copies
    flags += tl.program_id(1) * ROWS
    for lane in tl.static_range(4):
        positions = counter * 4 + lane
        _exact_lane(
            draws[lane], counter, positions, positions < chunk_size, pixels, out, flags,
            thresholds, floats, row_size, COUNT, STEPS, SHIFT,
        )  # fmt: skip


@triton.jit
def _gaussian_kernel(
    pixels, slots, numbers, images, out, key0, key1, sigma, row_size, chunk_size,
    BLOCK: tl.constexpr,
):  # fmt: skip
    draws, counter, image, copies = _chunk_draws(
        slots, numbers, images, key0, key1, row_size, chunk_size, BLOCK
    )
    pixels += image
    out += copies
    for lane in tl.static_range(4):
        raw = draws[lane]
        # Box–Muller: 40 bits for the length, which reaches 7.4σ, and 24 for the angle.
        u1 = ((raw >> 24) + 1).to(tl.float32) * (1.0 / 1099511627776.0)
        u2 = (raw & 0xFFFFFF).to(tl.float32) * (1.0 / 16777216.0)
        normal = tl.sqrt(-2.0 * tl.log(tl.minimum(u1, 1.0))) * tl.cos(6.283185307179586 * u2)
        positions = counter * 4 + lane
        inside = positions < chunk_size
        pixel = tl.load(pixels + positions % row_size, mask=inside, other=0.0)
        tl.store(out + positions, (pixel + sigma * normal).to(out.dtype.element_ty), mask=inside)


class Table(NamedTuple):
    """The tables of exact noise, which smoothing/exact_noise.py makes."""

    thresholds: np.ndarray  # int64, ascending
    floats: np.ndarray  # float32: what the network sees, by pixel + number of thresholds below U


class GpuNoise:
    """Fills batches of whole chunks on the pixels' device."""

    def __init__(
        self, pixels: Tensor, seed: int, purpose: int, table: Table | None, *, rows: int
    ) -> None:
        self.pixels = pixels  # (images, …), contiguous: uint8 if exact, else float32
        self.rows = rows  # copies per chunk
        device = pixels.device
        self.key = torch.tensor([seed, purpose], dtype=torch.int64, device=device)
        self.table = table
        if table:
            self.thresholds = torch.from_numpy(table.thresholds).to(device)
            self.floats = torch.from_numpy(table.floats).to(device)

    def fill(self, out: Tensor, chunks: Tensor, sigma: float) -> Tensor:
        """Fill the first chunks of `out` (rows, …), contiguous; 1 for undecided rows.

        Args:
            chunks: (3, chunks) int64: position of the image, number of the chunk, image's number.
        """
        rows = self.rows
        row_size = out[0].numel()
        chunk_size = rows * row_size
        flags = torch.zeros(len(out), dtype=torch.int32, device=out.device)
        grid = (triton.cdiv(chunk_size, 4 * BLOCK), chunks.shape[1])
        slots, numbers, images = chunks
        if self.table is None:
            _gaussian_kernel[grid](
                self.pixels, slots, numbers, images, out, self.key, self.key[1:],
                sigma, row_size, chunk_size, BLOCK=BLOCK,
            )  # fmt: skip
        else:
            count = len(self.thresholds)
            _exact_kernel[grid](
                self.pixels, slots, numbers, images, out, flags, self.thresholds, self.floats,
                self.key, self.key[1:], row_size, chunk_size,
                COUNT=count, STEPS=count.bit_length(), SHIFT=64 - BITS, ROWS=rows, BLOCK=BLOCK,
            )  # fmt: skip
        return flags
