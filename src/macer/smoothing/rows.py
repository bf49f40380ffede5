"""Refuse networks whose rows mix: no certificate can speak of them."""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from macer.kernels.agreement import FEW
from macer.models.probe import in_parts, require_equal
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.streams import Purpose

# Batches in which other halves of the rows are exchanged, at least. With the calls before and
# after them ten calls must agree: a choice between three at each call passes once in 3⁹ times.
EXCHANGES = 7

_passed: WeakKeyDictionary[nn.Module, set[tuple[object, ...]]] = WeakKeyDictionary()


def check_rows(
    model: nn.Module, images: Tensor, *, rows: int, sigma: float, dtype: torch.dtype
) -> None:
    """Compare logits: an image's must not depend on its company, its place or the call.

    Batch statistics, a quantisation range over the batch and randomness inside the network make
    f(x + η) no function of x + η, and the theorem says nothing of it. The network is tried with
    what is certified: noisy copies of the images, and of their negatives as other company, with
    their kind of noise, in the shape and type that it will see.

    - In each of T ≥ EXCHANGES batches about half of the rows are exchanged for other copies. Rows
      have different random numbers of T bits, and a batch exchanges those with one of its bits:
      any two rows are parted by at least one batch, with probability 1, and by each with
      probability about ½. All logits must be those of the same copy before, bit for bit.
    - The rows in another order may change by rounding only: a kernel may add up in another order
      at the edge of a batch.
    - The first batch again, after all others, must give the same logits, bit for bit.

    What no batch of these shows stays unseen: an influence of one row on another that happens in
    a share q of all batches passes with probability (1 − q)ᵀ or so. Where one row is seen at a
    time no other can matter, and the same comparisons are made of calls: in another order and
    after others, a row must have the same logits, bit for bit.

    Each model is tried once for a shape, type, kind of noise and σ.

    Args:
        images: (images, channels, height, width), uint8 for exact noise, else float32.
        rows: that the network sees at once; 1 for row by row.
        dtype: of what the network sees.
    """
    kind = (tuple(images.shape[1:]), images.dtype, images.device, rows, sigma, dtype)
    if kind in _passed.setdefault(model, set()):
        return
    several = rows * -(-FEW // rows)
    first, second = (
        _noisy(some, several, sigma, dtype) for some in (images, _white(images) - images)
    )

    def network(batch: Tensor) -> Tensor:
        return in_parts(model, batch.permute(0, 3, 1, 2), rows)

    with torch.inference_mode():
        _check_exchanges(network, first, second, alone=rows == 1)
    _passed[model].add(kind)


def _white(images: Tensor) -> int:
    return 1 if images.is_floating_point() else 255


def _noisy(images: Tensor, rows: int, sigma: float, dtype: torch.dtype) -> Tensor:
    """Noisy copies of the images in turn, a chunk each: (rows, height, width, channels)."""
    chunks = np.arange(-(-rows // CHUNK))
    numbers, slots = np.divmod(chunks, len(images))
    copies = NoisyCopies(
        images,
        range(len(images)),
        sigma=sigma,
        seed=0,
        purpose=Purpose.PROBE,
        rows=len(chunks) * CHUNK,
        dtype=dtype,
    )
    asked = np.minimum(CHUNK, rows - chunks * CHUNK)
    batch, _ = copies.draw(Chunks(slots, numbers, asked))
    return batch[:rows].permute(0, 2, 3, 1)


def _check_exchanges(
    network: Callable[[Tensor], Tensor], first: Tensor, second: Tensor, *, alone: bool
) -> None:
    random = torch.Generator().manual_seed(0)
    rows = len(first)
    bits = max(EXCHANGES, (rows - 1).bit_length())
    numbers = torch.randperm(2**bits, generator=random)[:rows].to(first.device)
    order = torch.randperm(rows, generator=random).to(first.device)
    a, b = network(first), network(second)
    for bit in range(bits):
        chosen = (numbers >> bit) % 2 == 1
        mixed = network(torch.where(chosen[:, None, None, None], first, second))
        require_equal(mixed, torch.where(chosen[:, None], a, b), alone=alone)
    rounding = 0.0 if alone else max(1e-3, 4 * torch.finfo(first.dtype).eps)
    require_equal(network(first[order]), a[order], alone=alone, rounding=rounding)
    require_equal(network(first), a, alone=alone)
