"""Read files within a size limit; write them completely or not at all."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from macer.system.errors import Mistake

LARGEST_FILE = 1 << 31  # bytes of a file of models or weights


@contextmanager
def opened(path: Path, *, limit: int = LARGEST_FILE) -> Iterator[BufferedReader]:
    """Open a regular file for reading.

    Others are refused: reading a pipe may block, and a device may never end.

    Args:
        limit: bytes; a larger file is refused.
    """
    try:
        # Without O_NONBLOCK, opening a pipe blocks until somebody writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link to itself or a socket
            raise
        raise Mistake(f"{path} must be a file that can be read: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Mistake(f"{path} must be a regular file, got {_file_type(status.st_mode)}")
    with os.fdopen(descriptor, "rb") as file:
        if status.st_size > limit:
            raise Mistake(f"{path} must be at most {limit:,} bytes, got {status.st_size:,}")
        yield file


def _file_type(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


def read_file(path: Path, *, limit: int = LARGEST_FILE) -> bytes:
    """The bytes that a regular file has when it is opened; more than `limit` bytes are refused.

    Bytes that another process appends meanwhile are not read.
    """
    with opened(path, limit=limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: Path, *, limit: int) -> str:
    """The text of a regular file, which must be UTF-8."""
    try:
        return read_file(path, limit=limit).decode()
    except UnicodeDecodeError as error:
        raise Mistake(f"{path} must be text in UTF-8: {error}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that the path always holds all of the old or all of the new content.

    This holds even if the process dies. On return the content is on the disk, not only in the
    system's cache.
    """
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically from pieces, so that memory never holds all of it."""
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
    """Put the names in a folder on the disk; a rename is durable only after this."""
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
    """Lock a folder for one writer; the system unlocks it when the process ends in any way."""
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake(
                f"{folder} is being written by another process; wait for it or end it"
            ) from None
        yield


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically to a path that the user gave."""
    check_place(path)
    write_atomically(path, content)


def check_place(path: Path) -> None:
    """Refuse a path where no file can be written."""
    if not path.parent.is_dir():
        raise Mistake(f"no folder {path.parent} to write {path.name} into: make it first")
    if path.is_dir():
        raise Mistake(f"path must be a file to write, got the folder {path}")


def check_ending(path: Path, what: str, *endings: str) -> None:
    """Refuse a path that ends otherwise, so that no file of another kind is overwritten."""
    if path.suffix.lower() not in endings:
        listed = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise Mistake(f"path of {what} must end in {listed}, got {str(path)!r}")
