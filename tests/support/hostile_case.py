"""A hostile file, who meets it, and the words it is refused with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """Everything happens in a folder of its own."""

    make: Callable[[], object]
    meet: Callable[[], object] | str  # a function, or the arguments of the command
    words: str  # in the line of the refusal


def write(name: str, content: bytes | str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def pipe(name: str) -> None:
    """A pipe that nobody writes into."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(name)


def link_to_zeros(name: str) -> None:
    """A file that never ends."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).symlink_to("/dev/zero")


def loop(name: str) -> None:
    """A link to itself."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).symlink_to(Path(name).name)


def sparse(name: str, size: int) -> None:
    """A large file that takes no room on the disk."""
    write(name, b"")
    os.truncate(name, size)
