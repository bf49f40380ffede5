"""Data sets: where their files lie, how they are read and downloaded."""

from macer.data.sets import load

__all__ = ["load"]
