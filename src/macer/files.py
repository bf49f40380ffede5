"""Files that survive a crash: whole or not at all."""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from macer.mistake import Mistake


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that, whenever the process dies, the path holds the old or the new content.

    On return the content is on the disk, not only in the system's cache.
    """
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically piece by piece, so that it need not be whole in memory."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename is not until its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of_file(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that died while writing."""
    for temporary in folder.glob(".*.[0-9]*.tmp"):
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for one writer; the system lets go of it however the process ends."""
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake(
                f"{folder} is being written by another process; wait for it or end it"
            ) from None
        yield


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, where the user asked for it."""
    check_place(path)
    write_atomically(path, content)


def check_place(path: Path) -> None:
    """Refuse a place where no file can be written."""
    if not path.parent.is_dir():
        raise Mistake(f"no folder {path.parent} to write {path.name} into: make it first")
    if path.is_dir():
        raise Mistake(f"path must be a file to write, got the folder {path}")
