"""Check the types of arguments and settings; a wrong type is a mistake in one line."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from macer.system.errors import Mistake

MAX_ENTRIES = 1000  # of a setting that is a list


def shown(value: object) -> str:
    """A value as a message shows it: one short line, or the type of an object without one."""
    if not isinstance(value, str | int | float | bytes | list | tuple | dict | None):
        return f"an object of type {type(value).__name__}"
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(value).__name__} of thousands of levels"
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"


def require_type(name: str, value: object, kind: Any, requirement: str, remedy: str = "") -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise wrong(name, requirement, value, remedy)


def wrong(name: str, requirement: str, value: object, remedy: str = "") -> Mistake:
    """The mistake "*name* must be *requirement*, got *value*; *remedy*"."""
    return Mistake(
        f"{name} must be {requirement}, got {shown(value)}{'; ' if remedy else ''}{remedy}"
    )


def check_types(settings: object, remedies: Mapping[str, str] | None = None) -> None:
    """Convert each field of a frozen dataclass to the type of its annotation, or refuse it.

    Args:
        remedies: what to do about a value of a wrong type, by the field's name.
    """
    kind: type = type(settings)
    values = {field: getattr(settings, field) for field in hints_of(kind)}
    for field, value in typed_fields(kind, values, remedies).items():
        object.__setattr__(settings, field, value)


def typed_fields(
    kind: type, values: Mapping[str, Any], remedies: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Values for fields of a dataclass in the types of its annotations; refuse all others."""
    return typed_values(hints_of(kind), values, remedies)


def typed_values(
    hints: Mapping[str, Any], values: Mapping[str, Any], remedies: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Values in the types of the annotations of their names; refuse all others.

    NumPy's numbers become Python's, whole numbers become floats where the field is a float, lists
    become tuples and paths become strings, so that equal settings make equal records.
    """
    remedies = remedies or {}
    return {
        name: _typed(name, _plain(value), hints[name], remedies.get(name, ""))
        for name, value in values.items()
    }


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass, with the ranges at them."""
    return get_type_hints(kind, include_extras=True)


def _plain(value: object) -> object:
    """The Python number for a NumPy number; without NumPy imported there can be none."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy and isinstance(value, numpy.generic) else value


def _typed(name: str, value: Any, hint: Any, remedy: str) -> Any:
    kind = kind_of(hint)
    origin, choices = get_origin(kind), get_args(kind)
    if value is None and may_be_none(hint):
        return None
    if origin is Literal:
        if not isinstance(value, str) or value not in choices:
            raise wrong(name, f"one of {', '.join(choices)}", value, remedy)
        return value
    if origin is tuple:
        return _list_of(name, value, choices[0], remedy)
    return _SIMPLE[kind](name, value, remedy) if kind in _SIMPLE else value  # checks itself


def kind_of(hint: Any) -> Any:
    """The type of values at an annotation, without its range and without None."""
    if get_origin(hint) is Annotated:
        return kind_of(get_args(hint)[0])
    if may_be_none(hint):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return kind_of(kinds[0]) if len(kinds) == 1 else hint
    return hint


def may_be_none(hint: Any) -> bool:
    """Whether an annotation is a union with None."""
    if get_origin(hint) is Annotated:
        return may_be_none(get_args(hint)[0])
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def is_simple(hint: Any) -> bool:
    """Whether values at an annotation are numbers, truths, or strings, perhaps some only."""
    kind = kind_of(hint)
    if get_origin(kind) is Literal:
        return all(isinstance(choice, str) for choice in get_args(kind))
    return kind in _SIMPLE


def _list_of(name: str, value: Any, kind: Any, remedy: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong(name, "a list", value, remedy)
    if len(value) > MAX_ENTRIES:
        raise Mistake(f"{name} must have at most {MAX_ENTRIES:,} entries, got {len(value):,}")
    return tuple(_typed(f"each of {name}", _plain(entry), kind, remedy) for entry in value)


def _whole(name: str, value: Any, remedy: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(name, "a whole number", value, remedy)
    return value


def _number(name: str, value: Any, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, "a number", value, remedy)
    try:
        return float(value)
    except OverflowError:
        raise wrong(name, "a number that a float holds", value, remedy) from None


def _truth(name: str, value: Any, remedy: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value, remedy)
    return value


def _text(name: str, value: Any, remedy: str) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise wrong(name, "a string", value, remedy)
    return value


_SIMPLE: dict[Any, Callable[[str, Any, str], Any]] = {
    int: _whole,
    float: _number,
    bool: _truth,
    str: _text,
}
