"""Files: read within a limit, and written whole or not at all."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from macer.errors import Mistake

LARGEST_FILE = 1 << 31  # bytes, of models and weights


@contextmanager
def opened(path: Path, *, limit: int = LARGEST_FILE) -> Iterator[BufferedReader]:
    """Open a regular file to read: a pipe could make us wait, a device might never end.

    Args:
        limit: bytes; a larger file is refused.
    """
    try:
        # Without O_NONBLOCK a pipe that nobody writes into would not even open.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link to itself, a socket
            raise
        raise Mistake(f"{path} must be a file that can be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Mistake(f"{path} must be a regular file, got {_kind(status.st_mode)}")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise Mistake(f"{path} must be at most {limit:,} bytes, got {status.st_size:,}")
        yield file


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


def read_file(path: Path, *, limit: int = LARGEST_FILE) -> bytes:
    """The bytes that a regular file has when it is opened; a file of more than `limit` is refused.

    One that others write to may grow meanwhile: what is added is not read.
    """
    with opened(path, limit=limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: Path, *, limit: int) -> str:
    """The text of a regular file in UTF-8."""
    try:
        return read_file(path, limit=limit).decode()
    except UnicodeDecodeError as error:
        raise Mistake(f"{path} must be text in UTF-8: {error}") from error


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
    with opened(path) as file:
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
