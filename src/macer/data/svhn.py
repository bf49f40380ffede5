"""Read SVHN's cropped digits from MATLAB files of version 5.

A file has a header of 128 bytes, then elements. An element has its type and its size, four bytes
each, and then its content, which may be zipped.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from macer.data.split import Split
from macer.system.errors import Mistake
from macer.system.files import read_file

_LARGEST = 1 << 29  # bytes, unzipped or not; the training images take 225,000,000
_MAX_ELEMENTS = 16  # SVHN has two
_ZIPPED = 15
_BLOCK = 1 << 20
_NUMBERS = ("double", "single", *(f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64)))


def read_svhn(paths: Sequence[Path]) -> Split:
    """Read a MATLAB file of SVHN's cropped digits, in which label 10 means 0."""
    import scipy.io

    (path,) = paths
    content = read_file(path, limit=_LARGEST)
    try:
        _check_elements(content)
        variables = scipy.io.whosmat(io.BytesIO(content))
    except Exception as error:  # a damaged file can raise anything
        _refuse(path, f"an unreadable file ({type(error).__name__}: {str(error)[:200]})")
    described = {name: (shape, kind) for name, shape, kind in variables}
    shape, kind = described.get("X", ((), ""))
    labels_shape, labels_kind = described.get("y", ((), ""))
    if (shape[:3], kind, labels_shape) != ((32, 32, 3), "uint8", (*shape[3:], 1)):
        _refuse(path, f"{described}"[:200])
    if math.prod(shape) > _LARGEST or labels_kind not in _NUMBERS:
        _refuse(path, f"{shape[3]:,} images with labels of kind {labels_kind}")
    try:
        arrays = scipy.io.loadmat(io.BytesIO(content), variable_names=["X", "y"])
        pixels, labels = arrays["X"].transpose(3, 2, 0, 1), arrays["y"].reshape(-1)
    except Exception as error:
        _refuse(path, f"a damaged file ({type(error).__name__}: {str(error)[:200]})")
    if len(wrong := labels[~np.isin(labels, np.arange(1, 11))]):
        _refuse(path, f"label {wrong[0]}")
    return Split(pixels, np.where(labels == 10, 0, labels).astype(np.int64))


def _check_elements(content: bytes) -> None:
    """Refuse a file with many elements, or with elements that are large when unzipped."""
    size = 0
    for count, (kind, element) in enumerate(_elements(content)):
        if count == _MAX_ELEMENTS:
            raise ValueError(f"more than {_MAX_ELEMENTS} variables")
        for block in _unzipped(element) if kind == _ZIPPED else (element,):
            size += len(block)
            if size > _LARGEST:
                raise ValueError(f"more than {_LARGEST:,} bytes unzipped")


def _elements(content: bytes) -> Iterator[tuple[int, memoryview]]:
    order = {b"IM": "<", b"MI": ">"}[content[126:128]]
    begin, view = 128, memoryview(content)
    while begin < len(content):
        kind, size = struct.unpack_from(f"{order}2L", content, begin)
        yield kind, view[begin + 8 : begin + 8 + size]
        begin += 8 + size


def _unzipped(element: memoryview) -> Iterator[bytes]:
    stream, rest = zlib.decompressobj(), bytes(element)
    while block := stream.decompress(rest, _BLOCK):
        yield block
        rest = stream.unconsumed_tail


def _refuse(path: Path, content: str) -> NoReturn:
    published = {"train_32x32.mat": 182_040_794, "test_32x32.mat": 64_275_384}
    raise Mistake(
        f"{path} must be a MATLAB file of {published[path.name]:,} bytes with "
        "X (32, 32, 3, images) uint8 and y (images, 1) in 1 to 10, "
        f"got {path.stat().st_size:,} bytes: {content}; "
        "delete it and download again"
    )
