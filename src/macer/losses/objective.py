"""A loss as the training loop sees it: a function, its settings, and its use of the epoch."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, get_type_hints

from torch import Tensor

from macer.recipes.fields import FIELDS
from macer.recipes.loss import NAME, Loss
from macer.system.errors import Mistake
from macer.system.ranges import check_ranges
from macer.system.typed import is_simple, kind_of, may_be_none, shown, typed_values
from macer.system.user_code import nearest

Settings = Mapping[str, Any]


def _one_phase(epoch: float, settings: Settings) -> Hashable:
    """A loss that does the same in every epoch."""
    return None


class Objective(NamedTuple):
    """A loss, and its phase.

    A GPU records a training step once and replays it. What the loss computes from the epoch on
    the host is then fixed, so the step is recorded anew whenever the loss's phase changes. A loss
    that reads `batch.epoch` declares here all that it takes from it.
    """

    loss: Callable[..., Tensor]  # of a Batch; its keyword-only arguments are its settings
    phase: Callable[[float, Settings], Hashable] = _one_phase


class Setting(NamedTuple):
    """One setting of a loss, as its function declares it."""

    hint: Any  # its type, which may have a range
    default: Any


def settings_of(loss: Callable[..., Any], name: str) -> dict[str, Setting]:
    """The settings of a loss, in the order of its keyword-only arguments.

    Args:
        name: of the loss, for messages.
    """
    settings = {}
    for setting, argument in _keyword_arguments(loss, name).items():
        if setting in FIELDS:
            raise Mistake(
                f"the loss {name} must not have a setting {setting}, which is a field of every "
                "recipe; read batch.recipe, or choose another name"
            )
        if setting == NAME:
            raise Mistake(
                f"the loss {name} must not have a setting {setting}, which is the name of the loss "
                "in a recipe; choose another name"
            )
        if argument.default is argument.empty:
            raise Mistake(f"the setting {setting} of the loss {name} must have a default, got none")
        settings[setting] = Setting(_type_of(argument, loss), argument.default)
        _check_type(setting, settings[setting].hint, name)
    return settings


def _keyword_arguments(loss: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    """The keyword-only arguments of a loss, whose first argument must be a Batch."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):  # of functions that are written in C
        raise Mistake(f"the loss {name} must be a Python function, got {shown(loss)}") from None
    try:
        signature.bind_partial(None)
    except TypeError as error:
        raise Mistake(f"the loss {name} must take a Batch, got {name}{signature}") from error
    arguments = signature.parameters.items()
    return {key: argument for key, argument in arguments if argument.kind is argument.KEYWORD_ONLY}


def _type_of(argument: inspect.Parameter, loss: Callable[..., Any]) -> Any:
    """The annotation of a setting, or the type of its default."""
    hint = argument.annotation
    if hint is argument.empty:
        hint = type(argument.default)
    function = loss.func if isinstance(loss, functools.partial) else loss
    module = sys.modules.get(function.__module__)
    names = vars(module) if module else {}
    # Other annotations are not looked up: their types may be imported for a type checker alone.
    holder = SimpleNamespace(__annotations__={argument.name: hint})
    with contextlib.suppress(NameError, TypeError, SyntaxError):  # a string that names no type
        hint = get_type_hints(holder, names, include_extras=True)[argument.name]
    return hint


def _check_type(setting: str, hint: Any, name: str) -> None:
    """Refuse a type that a recipe's file or a flag cannot give."""
    got = inspect.formatannotation(hint)
    if not is_simple(hint):
        raise Mistake(
            f"the setting {setting} of the loss {name} must be a float, int, bool, str, a "
            f"Literal of strings, or one of these | None, got {got}"
        )
    if setting == "lam" and (may_be_none(hint) or kind_of(hint) not in (float, int)):
        raise Mistake(
            f"the setting lam of the loss {name} must be a float, since it follows lam_schedule, "
            f"got {got}; or choose another name"
        )
    if setting == "teacher" and kind_of(hint) is not str:
        raise Mistake(
            f"the setting teacher of the loss {name} must be a str, since it names a model, "
            f"got {got}; or choose another name"
        )


def checked(given: Loss, loss: Callable[..., Any]) -> Loss:
    """The loss with all of its settings, those that were not given at their defaults."""
    known = settings_of(loss, given.name)
    for setting in given:
        if setting not in known:
            listed = f"its settings are {', '.join(known)}" if known else "it has no settings"
            raise Mistake(
                f"the loss {given.name} has no setting {setting!r}{nearest(setting, known)}; "
                f"{listed}"
            )
    values = {setting: given.get(setting, known[setting].default) for setting in known}
    hints = {setting: known[setting].hint for setting in known}
    values = typed_values(hints, values)
    check_ranges(hints, values)
    return Loss(given.name, **values)
