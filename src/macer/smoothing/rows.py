"""Refuse networks whose rows influence one another: no certificate can hold for them."""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from macer.kernels.agreement import FEW
from macer.models.modes import remembered, unchanged, values_of
from macer.models.probe import in_parts, require_equal
from macer.smoothing.copies import (
    CHUNK,
    Chunks,
    NoisyCopies,
    channels_first,
    channels_last,
    chunks_for,
)
from macer.smoothing.streams import Purpose

# The least number of batches in which half of the rows are exchanged. With the calls before and
# after them, ten calls must agree: a network that chooses between three answers at each call
# passes once in 3⁹ times.
EXCHANGES = 7


class _Passed(NamedTuple):
    """A model that has passed: what its parts held, and its classes by what it was tried with."""

    values: list[object]
    classes: dict[tuple[object, ...], int]


_passed: WeakKeyDictionary[nn.Module, _Passed] = WeakKeyDictionary()


def check_rows(
    model: nn.Module,
    images: Tensor,
    *,
    rows: int,
    sigma: float,
    dtype: torch.dtype,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Refuse a network if an image's logits depend on other rows, on its row or on the call.

    Returns the number of classes.

    With batch statistics, a quantisation range over the batch or randomness inside the network,
    f(x + η) is no function of x + η, and the theorem says nothing about it. The network is tried
    with what is certified: noisy copies of the images, and of their negatives as other rows, with
    the same kind of noise, in the shape and type that it will see. The negatives have noise of
    their own, since an image may be its own negative.

    - In each of T ≥ EXCHANGES batches about half of the rows are exchanged for other copies. Each
      row has its own random number of T bits, and batch t exchanges the rows whose bit t is 1: at
      least one batch exchanges one of any two rows and keeps the other, and each batch does so
      with probability about ½. Each copy must keep its logits, bit for bit.
    - In another order of the rows, the logits may change by rounding only: a kernel may add up in
      another order at the edge of a batch.
    - The first batch, repeated at the end, must give the same logits, bit for bit.

    An influence of one row on another that appears in a share q of all batches goes unnoticed
    with probability about (1 − q)ᵀ. If the network sees one row at a time, no other row can
    matter, and the comparisons are between calls: in another order and after other calls, a row
    must have the same logits, bit for bit.

    Each model is tried once for a shape, type, kind of noise and σ, and again after any change
    of what its parts hold besides tensors, such as a flag that makes it random.

    Args:
        images: uint8 for exact noise, else float32; see `NoisyCopies`.
        rows: the rows that the network sees at once; 1 for row by row.
        dtype: the type of what the network sees.
        progress: called with 1 after each of `trials(rows)` batches.
    """
    setting = (tuple(images.shape[1:]), images.dtype, images.device, rows, sigma, dtype)
    passed = _passed.get(model)
    known = passed.classes if passed and unchanged(passed.values, values_of(model)) else {}
    if setting in known:
        return known[setting]
    several = _tried_rows(rows)
    first = _noisy(images, several, sigma, dtype, seed=0)
    second = _noisy(_negatives(images), several, sigma, dtype, seed=1)

    def network(batch: Tensor) -> Tensor:
        logits = in_parts(model, channels_first(batch), rows)
        if progress:
            progress(1)
        return logits

    with torch.inference_mode():
        classes = _check_exchanges(network, first, second, alone=rows == 1)
    _passed[model] = _Passed(remembered(values_of(model)), {**known, setting: classes})
    return classes


def trials(rows: int) -> int:
    """The number of batches that `check_rows` shows a network of so many rows."""
    return _bits(_tried_rows(rows)) + 4  # the two batches; mixed; in another order; the first again


def _tried_rows(rows: int) -> int:
    return rows * -(-FEW // rows)


def _bits(rows: int) -> int:
    return max(EXCHANGES, (rows - 1).bit_length())


def _negatives(images: Tensor) -> Tensor:
    """Black for white and white for black; floats stay between their least and largest value."""
    if images.dtype == torch.uint8:
        return 255 - images
    low, high = images.aminmax()
    return low + (high - images)


def _noisy(images: Tensor, rows: int, sigma: float, dtype: torch.dtype, *, seed: int) -> Tensor:
    """Noisy copies of the images in turn, one chunk of each, channels last."""
    chunks = np.arange(chunks_for(rows))
    numbers, slots = np.divmod(chunks, len(images))
    copies = NoisyCopies(
        images,
        range(len(images)),
        sigma=sigma,
        seed=seed,
        purpose=Purpose.PROBE,
        rows=len(chunks) * CHUNK,
        dtype=dtype,
    )
    asked = np.minimum(CHUNK, rows - chunks * CHUNK)
    batch, _ = copies.draw(Chunks(slots, numbers, asked))
    return channels_last(batch[:rows])


def _check_exchanges(
    network: Callable[[Tensor], Tensor], first: Tensor, second: Tensor, *, alone: bool
) -> int:
    """Compare the logits of exchanged rows; return the number of classes."""
    random = torch.Generator().manual_seed(0)
    rows = len(first)
    bits = _bits(rows)
    numbers = torch.randperm(2**bits, generator=random)[:rows].to(first.device)
    order = torch.randperm(rows, generator=random).to(first.device)
    a, b = network(first), network(second)
    for bit in range(bits):
        chosen = (numbers >> bit) % 2 == 1
        where = chosen.view(-1, *[1] * (first.ndim - 1))
        mixed = network(torch.where(where, first, second))
        require_equal(mixed, torch.where(chosen[:, None], a, b), alone=alone)
    rounding = 0.0 if alone else max(1e-3, 4 * torch.finfo(first.dtype).eps)
    require_equal(network(first[order]), a[order], alone=alone, rounding=rounding)
    require_equal(network(first), a, alone=alone)
    return a.shape[1]
