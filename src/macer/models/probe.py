"""Refuse what is no classifier, and networks that answer the same images differently."""

import torch
from torch import Tensor, nn

from macer.errors import Mistake

CALLS = 9  # on the same few images, before a network is traced


def in_parts(network: nn.Module, batch: Tensor, rows: int) -> Tensor:
    """The logits of a batch of which the network sees so many rows at once."""
    return torch.cat([_logits(network, part) for part in torch.split(batch, rows)])


def _logits(network: nn.Module, batch: Tensor) -> Tensor:
    """A network's answer, which must be logits."""
    answer: object = network(batch)
    if not isinstance(answer, Tensor):
        got = type(answer).__name__
    elif answer.ndim != 2 or len(answer) != len(batch) or answer.shape[1] < 2:
        got = f"the shape {tuple(answer.shape)} for {len(batch)} images"
    elif not answer.is_floating_point():
        got = str(answer.dtype).removeprefix("torch.")
    else:
        return answer
    raise Mistake(
        "the model must return logits, floats of the shape (images, classes) with two classes or "
        f"more, got {got}; wrap it in an nn.Module that does"
    )


def check_model(model: object) -> None:
    """Refuse what is no network."""
    if not isinstance(model, nn.Module):
        raise Mistake(
            f"the model must be an nn.Module, got {type(model).__name__}; wrap it in one that "
            "returns logits"
        )


def check_calls(model: nn.Module, images: Tensor) -> None:
    """Compare the logits of several calls on the same few images, bit for bit.

    A network must pass this before it is traced: a trace keeps what chance chose at its time.
    """
    with torch.inference_mode():
        first = _logits(model, images)
        for _ in range(CALLS - 1):
            require_equal(first, _logits(model, images), alone=False)


def require_equal(a: Tensor, b: Tensor, *, alone: bool, rounding: float = 0.0) -> None:
    """Refuse logits that differ, NaN from NaN too, by more than a share of the largest."""
    same = (a == b) | (a.isnan() & b.isnan())
    if rounding:
        largest = torch.where(b.isfinite(), b, 0).abs().max()
        same |= (a - b).abs() <= rounding * largest
    if same.all():
        return
    if alone:
        raise Mistake(
            "the model must give an image the same logits at every call, got others; it may be "
            "random in eval mode or keep something between calls"
        )
    raise Mistake(
        "the model must give an image the same logits in any company and at any time, got "
        "others; it may use batch statistics or dropout in eval mode: if only the batch matters, "
        "add --row-by-row (row_by_row=True), which shows it one image at a time"
    )
