"""Read the file formats of image data sets; no file runs code."""

import gzip
import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from macer.data.split import Split
from macer.system.errors import Mistake
from macer.system.files import opened, read_file
from macer.system.pickles import Call, RefusedName, read_pickle

_CIFAR10_IMAGES = 10_000  # in every batch file
_CIFAR10_RECORD = 1 + 3 * 32 * 32
_LARGEST_IDX = 1 << 30  # bytes, unzipped; EMNIST's 697,932 images take half of it
_LARGEST_PICKLE = 1 << 26  # bytes
_BLOCK = 1 << 20


def _size_mistake(path: Path, expected: int, size: int, remark: str = "") -> Mistake:
    return Mistake(
        f"{path} must be {expected:,} bytes, got {size:,}{remark}; delete it and download again"
    )


def read_idx(paths: Sequence[Path]) -> Split:
    """Read an idx file of images and one of labels, each gzipped or not."""
    images, labels = (
        _idx(path, dimensions) for path, dimensions in zip(paths, (3, 1), strict=True)
    )
    return Split(images[:, None], labels.astype(np.int64))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    with opened(path, limit=_LARGEST_IDX) as file:
        if path.suffix != ".gz":
            return _idx_array(path, file, dimensions)
        try:
            return _idx_array(path, gzip.GzipFile(fileobj=file), dimensions)
        except (zlib.error, gzip.BadGzipFile) as error:
            raise Mistake(
                f"{path} must be a gzip file, got {path.stat().st_size:,} bytes that are not "
                f"({error}); delete it and download again"
            ) from error


def _idx_array(path: Path, file: io.BufferedReader | gzip.GzipFile, dimensions: int) -> np.ndarray:
    """The array of an idx stream; it takes no more memory than the header says."""
    start = 4 + 4 * dimensions
    header, _ = _read(file, start)
    if len(header) < start:
        raise _size_mistake(path, start, len(header), ", less than its header")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", header)
    if magic != 0x800 + dimensions:  # 8: unsigned bytes
        raise Mistake(
            f"{path} must begin with {0x800 + dimensions:08x} (idx), got {magic:08x}; "
            "delete it and download again"
        )
    expected = start + math.prod(shape)
    if expected > _LARGEST_IDX:
        raise Mistake(
            f"{path} must hold at most {_LARGEST_IDX:,} bytes, got a header of {expected:,}"
        )
    data, whole = _read(file, expected - start + 1)  # one more, to notice a longer file
    if len(data) != expected - start or not whole:
        size = start + len(data)
        raise _size_mistake(path, expected, size, "" if whole else ", a gzip file cut short")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _read(file: io.BufferedReader | gzip.GzipFile, size: int) -> tuple[bytearray, bool]:
    """At most `size` bytes, and whether the stream is whole: a gzip stream may be cut short."""
    data = bytearray()
    try:
        while len(data) < size and (block := file.read1(min(_BLOCK, size - len(data)))):
            data += block
    except EOFError:
        return data, False
    return data, True


def read_cifar10_binary(paths: Sequence[Path]) -> Split:
    """Read batches of CIFAR-10's binary version: records of one label and 3072 pixels."""
    expected = _CIFAR10_IMAGES * _CIFAR10_RECORD
    batches = []
    for path in paths:
        with opened(path) as file:
            batches.append(np.frombuffer(file.read(expected), np.uint8))
        if (size := path.stat().st_size) != expected:
            raise _size_mistake(path, expected, size)
    records = np.concatenate(batches).reshape(-1, _CIFAR10_RECORD)
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def read_cifar10_python(paths: Sequence[Path]) -> Split:
    """Read batches of CIFAR-10's Python version; no function in their pickles is called."""
    batches = [_cifar10_batch(path) for path in paths]
    images = np.concatenate([batch.images for batch in batches])
    return Split(images, np.concatenate([batch.labels for batch in batches]))


# NumPy pickles arrays with these functions; none of them is called.
_ARRAYS = (
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",  # Python 3's bytes in protocols 0 to 2
)


def _cifar10_batch(path: Path) -> Split:
    data = read_file(path, limit=_LARGEST_PICKLE)
    try:
        batch = read_pickle(io.BytesIO(data), admitted=_ARRAYS)
        images = _recorded_array(batch["data"]).reshape(_CIFAR10_IMAGES, 3, 32, 32)
        labels = np.array(batch["labels"], np.int64).reshape(_CIFAR10_IMAGES)
    except RefusedName as refused:
        raise Mistake(
            f"{path} was refused: a pickle must hold arrays only, got {refused.name}; "
            "delete it and download again"
        ) from refused
    except Exception as error:  # a damaged pickle can raise anything
        raise Mistake(
            f"{path} must be a batch of CIFAR-10's Python version (about 31,000,000 bytes), "
            f"got {len(data):,} bytes that are not ({type(error).__name__}: {error}); "
            "delete it and download again"
        ) from error
    return Split(images, labels)


def _recorded_array(recorded: Any) -> np.ndarray:
    """The array of bytes in NumPy's pickled state: (version, shape, dtype, column-major, bytes)."""
    _, shape, dtype, column_major, data = recorded.state
    if dtype.arguments[0] != "u1":
        raise TypeError(f"dtype must be u1, got {dtype.arguments[0]!r}")
    if isinstance(data, Call):
        data = data.arguments[0]
    if isinstance(data, str):
        data = data.encode("latin1")
    return np.frombuffer(data, np.uint8).reshape(shape, order="F" if column_major else "C")
