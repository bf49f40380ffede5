"""Data sets: where their files lie, how they are read and fetched."""

from macer.data.sets import load

__all__ = ["load"]
