"""A loss as the training loop sees it: a function, its settings, and its use of the epoch."""

import inspect
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, get_type_hints

from torch import Tensor

from macer.errors import Mistake
from macer.recipes.fields import FIELDS
from macer.recipes.loss import NAME, Loss
from macer.system.ranges import check_ranges
from macer.system.typed import shown, typed_values, wrong
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
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # of functions that are written in C
        raise Mistake(f"the loss {name} must be a Python function, got {shown(loss)}") from None
    arguments = [argument for argument in parameters if argument.kind is argument.KEYWORD_ONLY]
    for argument in arguments:
        _check_setting(argument, name)
    hints = _hints(loss, arguments, name)
    return {
        argument.name: Setting(hints.get(argument.name, type(argument.default)), argument.default)
        for argument in arguments
    }


def _check_setting(argument: inspect.Parameter, loss: str) -> None:
    """Refuse a setting that a recipe's file or a recipe cannot have."""
    if argument.name in FIELDS:
        raise Mistake(
            f"the loss {loss} must not have a setting {argument.name}, which is a field of every "
            "recipe; read batch.recipe, or choose another name"
        )
    if argument.name == NAME:
        raise Mistake(
            f"the loss {loss} must not have a setting {NAME}, which is the loss's own name in its "
            "table; choose another name"
        )
    if argument.default is argument.empty:
        raise Mistake(
            f"the setting {argument.name} of the loss {loss} must have a default, got none"
        )


def _hints(
    loss: Callable[..., Any], settings: Iterable[inspect.Parameter], name: str
) -> dict[str, Any]:
    """The types of the settings alone: a module need not import those of other arguments."""

    def annotated() -> None: ...

    function = loss.func if isinstance(loss, partial) else loss
    function = function if inspect.isroutine(function) else type(function).__call__
    annotated.__annotations__ = {
        setting.name: setting.annotation
        for setting in settings
        if setting.annotation is not setting.empty
    }
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(annotated, globalns=names, include_extras=True)
    except NameError as error:
        raise Mistake(
            f"the loss {name} must have settings of types that its module imports: {error}"
        ) from error


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
    for setting, value in values.items():
        _check_writable(setting, value)
    return Loss(given.name, **values)


def _check_writable(setting: str, value: object) -> None:
    """Refuse a value that a run's manifest cannot hold."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        remedy = "a recipe is written into files"
        raise wrong(setting, "numbers, strings, or lists of them", value, remedy) from None
