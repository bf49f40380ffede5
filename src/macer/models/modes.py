"""The mode of a network, the type of its weights, its hooks, and what else its parts hold."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, str, set)  # compared by their value


def network_dtype(model: nn.Module) -> torch.dtype:
    """The type of the network's weights; its images must have the same type."""
    types = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(types, torch.float32)


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put the models into eval mode; afterwards each of their parts gets its own mode back."""
    training = [part for model in models for part in model.modules() if _trains(part)]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _trains(part: nn.Module) -> bool:
    """Whether a part is in training mode; a frozen part of TorchScript has no mode."""
    return getattr(part, "training", False)


def has_hooks(model: nn.Module) -> bool:
    """Whether a part of the model runs other functions before or after its forward method."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def values_of(model: nn.Module) -> list[Any]:
    """The types of a network's parts and the values that they hold; `training` is left out."""
    values: list[Any] = []
    for part in model.modules():
        values.append(type(part))
        own = {name: held for name, held in list(vars(part).items()) if name != "training"}
        _gather(own, values)
    return values


def _gather(value: Any, values: list[Any], inside: tuple[int, ...] = ()) -> None:
    """Append what a value holds, with the size and the keys of each container; no tensor.

    Args:
        inside: the containers that hold the value, which may be among them.
    """
    if isinstance(value, dict | list | tuple):
        values.append(len(value))
        if not value or id(value) in inside:
            return
        if isinstance(value, dict):
            values += list(value)
        for held in list(value.values() if isinstance(value, dict) else value):
            _gather(held, values, (*inside, id(value)))
    elif not isinstance(value, Tensor):
        values.append(value)


def remembered(values: Sequence[Any]) -> list[Any]:
    """The values and tensors as they are now, to be compared later; no part is kept alive."""
    return [_copied(value) for value in values]


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray | set):
        return value.copy()
    if isinstance(value, _PLAIN):
        return value
    try:
        return weakref.ref(value)
    except TypeError:  # such as None, which is nobody's part
        return value


def unchanged(before: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether values are those that were remembered."""
    return len(before) == len(now) and all(map(_is_same, before, now))


def _is_same(before: Any, now: Any) -> bool:
    if before is now:  # most values, such as names; what can change was copied
        return True
    if isinstance(before, Tensor) and isinstance(now, Tensor):  # the copy of a parameter is none
        same_type = (before.dtype, before.device) == (now.dtype, now.device)
        return same_type and bool(before.equal(now))
    if isinstance(before, np.ndarray):
        same_type = isinstance(now, np.ndarray) and before.dtype == now.dtype
        return same_type and np.array_equal(before, now)
    if isinstance(before, _PLAIN):
        return type(before) is type(now) and bool(before == now)
    # A function, a part, or what else cannot be compared by its value.
    return (before() if isinstance(before, weakref.ref) else before) is now
