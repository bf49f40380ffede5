"""A loss as the training loop sees it: a function, its settings, and its use of the epoch."""

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, get_type_hints

from torch import Tensor

from macer.errors import Mistake
from macer.recipes.fields import FIELDS
from macer.recipes.loss import Loss
from macer.system.ranges import check_ranges
from macer.system.typed import typed_values
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


class SettingOf(NamedTuple):
    """One setting of a loss, as its function declares it."""

    hint: Any  # its type, which may have a range
    default: Any


def settings_of(loss: Callable[..., Any], name: str) -> dict[str, SettingOf]:
    """The settings of a loss, in the order of its keyword-only arguments.

    Args:
        name: of the loss, for messages.
    """
    hints = get_type_hints(loss, include_extras=True)
    arguments = inspect.signature(loss).parameters.values()
    settings = {
        argument.name: SettingOf(hints.get(argument.name, type(argument.default)), argument.default)
        for argument in arguments
        if argument.kind is argument.KEYWORD_ONLY
    }
    for setting, (_, default) in settings.items():
        if setting in FIELDS:
            raise Mistake(
                f"the loss {name} must not have a setting {setting}, which is a field of every "
                "recipe; read batch.recipe, or choose another name"
            )
        if default is inspect.Parameter.empty:
            raise Mistake(f"the setting {setting} of the loss {name} must have a default, got none")
    return settings


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
    values = typed_values({setting: known[setting].hint for setting in known}, values)
    check_ranges(loss, values)
    return Loss(given.name, **values)
