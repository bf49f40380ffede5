"""The command `macer`."""

from macer.cli.app import main

__all__ = ["main"]
