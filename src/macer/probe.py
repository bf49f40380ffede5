"""Refuse models that no certificate can speak of: random ones, and those whose rows mix."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from macer.mistake import Mistake

# Calls that must agree: a choice between three at each call passes once in 6,561 times.
CALLS = 9
FEW = 8  # images in each of them

_passed: WeakKeyDictionary[nn.Module, set[tuple[object, ...]]] = WeakKeyDictionary()


def check_rows(
    model: nn.Module, shape: Sequence[int], *, rows: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Compare logits bit for bit: an image's must not depend on its company or on the call.

    Batch statistics, as of a batch-norm in training mode, and randomness inside the network, as of
    dropout, make f(x + η) no function of x + η, and the theorem says nothing of it. Each model is
    tried once for a shape.
    """
    kind = (tuple(shape), rows, dtype, device)
    if kind in _passed.setdefault(model, set()):
        return
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand((rows, *shape), generator=generator) for _ in range(2))
    second[::2] = first[::2]  # the same images among others
    with torch.inference_mode():
        a, b = (model(_as_given(x, dtype, device))[::2] for x in (first, second))
    _require_equal(a, b)
    check_calls(model, shape, dtype=dtype, device=device)
    _passed[model].add(kind)


def check_calls(
    model: nn.Module, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device
) -> None:
    """Compare the logits of several calls on the same few images, bit for bit.

    A network must pass this before it is traced: a trace keeps what chance chose at its time.
    """
    images = torch.rand((FEW, *shape), generator=torch.Generator().manual_seed(0))
    few = _as_given(images, dtype, device)
    with torch.inference_mode():
        first = model(few)
        for _ in range(CALLS - 1):
            _require_equal(first, model(few))


def _require_equal(a: Tensor, b: Tensor) -> None:
    if not torch.equal(a.nan_to_num(), b.nan_to_num()):
        raise Mistake(
            "the model must give an image the same logits in any company and at any time, got "
            "others; it may use batch statistics or dropout in eval mode"
        )


def _as_given(images: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    return images.to(device, dtype).contiguous(memory_format=torch.channels_last)
