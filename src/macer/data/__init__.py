"""Data sets: where their files lie, how they are read and fetched."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from macer.data.sets import load

__all__ = ["load"]


def __getattr__(name: str) -> object:
    """`macer.data.load`, imported when it is first used: a report needs nothing of it."""
    if name != "load":
        raise AttributeError(f"module 'macer.data' has no attribute {name!r}")
    from macer.data.sets import load

    return load
