"""Recipes of older runs: the settings of all losses were fields, side by side.

A manifest in this flat form is still read, so that a run that began then goes on. A recipe's file
in this form is refused, with a line that says how to write it now.
"""

from collections.abc import Mapping
from typing import Any

_HINGE = ("lam", "gamma", "beta", "cross_entropy")

# By loss, the fields that it read, in the order of its settings today.
SETTINGS: dict[str, tuple[str, ...]] = {
    "macer": _HINGE,
    "gaussian": (),
    "stability": ("lam",),
    "consistency": ("lam", "eta"),
    "macer-consistency": (*_HINGE, "consistency", "eta"),
    "macer-hard-noise": (*_HINGE, "consistency", "eta", "steps", "step_size"),
    "smoothadv": ("attack", "epsilon", "epsilon_ramp", "steps", "step_size"),
    "smoothmix": ("eta", "eta_ramp", "steps", "step_size"),
    "catrs": ("lam", "epsilon", "steps", "step_size", "teacher"),
    "sun": ("steps", "step_size", "attack_epoch"),
}

# What a field was where the manifest does not have it: it came after the run began.
_DEFAULTS: dict[str, Any] = {
    "lam": 12.0,
    "gamma": 8.0,
    "beta": 16.0,
    "cross_entropy": "smoothed",
    "eta": 0.5,
    "consistency": 10.0,
    "attack": "pgd",
    "epsilon": 1.0,
    "epsilon_ramp": 10,
    "steps": 4,
    "step_size": 0.0,
    "teacher": "",
    "drop_epoch": 0,
}
FLAT = frozenset(_DEFAULTS) - {"drop_epoch"}


def is_flat(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe has the settings of its loss beside its other fields."""
    return isinstance(recipe.get("loss", ""), str)


def from_flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with the settings that its loss read under `loss`."""
    name = recipe.get("loss", "macer")
    values = _DEFAULTS | dict(recipe)
    settings = {setting: _value(name, setting, values) for setting in SETTINGS.get(name, ())}
    others = {field: value for field, value in recipe.items() if field not in FLAT}
    if name in SETTINGS and "lam" not in settings:
        others.pop("lam_schedule", None)  # it had no effect, and is refused today
    return others | {"loss": {"name": name, **settings}}


def _value(loss: str, setting: str, values: Mapping[str, Any]) -> Any:
    """A setting's value today, for a field that had another name or meaning."""
    if setting == "step_size":
        if loss in ("macer-hard-noise", "sun"):
            return values["step_size"] or values["epsilon"] / max(values["steps"], 1)
        return values["step_size"] or None
    renamed = {"eta_ramp": "epsilon_ramp", "attack_epoch": "drop_epoch"}
    return values[renamed.get(setting, setting)]
