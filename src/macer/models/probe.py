"""Refuse models that are no classifiers, or whose logits for the same image differ."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from macer.kernels.agreement import logits_of
from macer.system.errors import Mistake

CALLS = 9  # with the same images, before a network is traced


def in_parts(network: nn.Module, batch: Tensor, rows: int) -> Tensor:
    """The logits of a batch; the network sees `rows` of its rows at once."""
    return torch.cat([_logits(network, part) for part in torch.split(batch, rows)])


def _logits(network: nn.Module, batch: Tensor) -> Tensor:
    """A network's output, or its `.logits`, which must be logits."""
    try:
        output: object = network(batch)
    except Mistake:
        raise
    except Exception as error:  # whatever the user's code raises
        error.add_note(f"The model was called with a batch of the shape {tuple(batch.shape)}.")
        raise
    if not isinstance(output, Tensor):
        output = logits_of(output)
    if not isinstance(output, Tensor):
        got = type(output).__name__
    elif output.ndim != 2 or len(output) != len(batch) or output.shape[1] < 2:
        got = f"the shape {tuple(output.shape)} for {len(batch)} images"
    elif not output.is_floating_point():
        got = str(output.dtype).removeprefix("torch.")
    else:
        return output
    raise Mistake(
        "the model must return logits, floats of the shape (images, classes) with two classes or "
        f"more, got {got}; wrap it in an nn.Module that does"
    )


def check_model(model: object) -> None:
    """Refuse an object that is no network."""
    if not isinstance(model, nn.Module):
        raise Mistake(
            f"the model must be an nn.Module, got {type(model).__name__}; wrap it in one that "
            "returns logits"
        )


def check_calls(
    model: nn.Module, images: Tensor, progress: Callable[[int], None] | None = None
) -> None:
    """Compare the logits of several calls with the same images, bit for bit.

    A random network must not be traced, since a trace would repeat the random choices of its call.

    Args:
        progress: called with 1 after each of CALLS calls.
    """
    with torch.inference_mode():
        first = _logits(model, images)
        for _ in range(CALLS - 1):
            require_equal(first, _logits(model, images), alone=False)
            if progress:
                progress(1)


def require_equal(a: Tensor, b: Tensor, *, alone: bool, rounding: float = 0.0) -> None:
    """Refuse logits that differ; NaN equals NaN.

    Args:
        alone: whether the network sees one image at a time.
        rounding: the tolerance, as a share of the largest logit.
    """
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
