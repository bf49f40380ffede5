"""How the files of image data sets lie and are read; no file runs code."""

import io
import math
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from macer.mistake import Mistake

if TYPE_CHECKING:
    from macer.image_files import ImageFiles

SPLITS = ("train", "test")

_CIFAR10_IMAGES = 10_000  # in every batch file
_CIFAR10_RECORD = 1 + 3 * 32 * 32
_LARGEST_FILE = 1 << 31  # bytes
_LARGEST_PICKLE = 1 << 26


Images: TypeAlias = "np.ndarray | ImageFiles"  # np.asarray() makes an array of either


ARRAYS = "arrays"  # the data set's name of images that a caller hands over


@dataclass(frozen=True, eq=False)
class Split:
    """The images of one split and their labels, which it can be unpacked into.

    Args:
        images: (images, channels, height, width) uint8, contiguous; or the files they are in
        labels: (images,) int64
        dataset: name of the data set that they come from
    """

    images: Images
    labels: np.ndarray
    dataset: str = ARRAYS

    def __iter__(self) -> Iterator[Any]:
        return iter((self.images, self.labels))

    def part(self, start: int, stop: int | None = None) -> "Split":
        """The images from one number to before another, with their labels."""
        rows = slice(start, stop)
        return replace(self, images=self.images[rows], labels=self.labels[rows])


class Layout(NamedTuple):
    """How the files of a data set lie in the data folder, and what reads them."""

    folders: tuple[str, ...]  # in order of preference
    train: tuple[str, ...]
    test: tuple[str, ...]
    reader: Callable[[Sequence[Path]], Split]
    gzipped: bool = False  # the names may end in .gz

    def files(self, folder: Path, split: str) -> list[Path] | None:
        """Paths of a split's files, in the place that has files of the data set; else None."""
        place = self.place(folder)
        return self._paths(place, split) if place else None

    def place(self, folder: Path) -> Path | None:
        """The first folder that has one of the splits: both are read from there."""
        found = (
            place
            for place in self._places(folder)
            if any(self._paths(place, split)[0].exists() for split in SPLITS)
        )
        return next(found, None)

    def _paths(self, place: Path, split: str) -> list[Path]:
        names = self.train if split == "train" else self.test
        return [self._gzipped_or_not(place / name) for name in names]

    def _gzipped_or_not(self, path: Path) -> Path:
        gzipped = path.with_name(f"{path.name}.gz")
        return gzipped if self.gzipped and gzipped.exists() and not path.exists() else path

    def _places(self, folder: Path) -> list[Path]:
        """The folders to look in; the data folder may itself be the data set's own."""
        return [place for name in self.folders for place in _joined(folder, Path(name))]


def _joined(folder: Path, name: Path) -> Iterator[Path]:
    """The name under the folder, then where the folder's path already has its beginning.

    data, MNIST/raw → data/MNIST/raw
    data/MNIST, MNIST/raw → data/MNIST/MNIST/raw, data/MNIST/raw
    """
    yield folder / name
    for shared in range(1, len(name.parts) + 1):
        if folder.absolute().parts[-shared:] == name.parts[:shared]:
            yield folder.joinpath(*name.parts[shared:])


def _size_mistake(path: Path, expected: int, found: int, remark: str = "") -> Mistake:
    return Mistake(
        f"{path} must be {expected:,} bytes, got {found:,}{remark}; delete it and download again"
    )


def _limited(path: Path, limit: int) -> bytes:
    size = path.stat().st_size
    if size > limit:
        raise Mistake(f"{path} must be at most {limit:,} bytes, got {size:,}")
    return path.read_bytes()


def read_idx(paths: Sequence[Path]) -> Split:
    """Read an idx file of images and one of labels, each gzipped or not."""
    images, labels = (
        _idx(path, dimensions) for path, dimensions in zip(paths, (3, 1), strict=True)
    )
    return Split(images[:, None], labels.astype(np.int64))


def _idx(path: Path, dimensions: int) -> np.ndarray:
    data, whole = _contents(path)
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise _size_mistake(path, start, len(data), ", less than its header")
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", data)
    if magic != 0x800 + dimensions:  # 8: unsigned bytes
        raise Mistake(
            f"{path} must begin with {0x800 + dimensions:08x} (idx), got {magic:08x}; "
            "delete it and download again"
        )
    expected = start + math.prod(shape)
    if len(data) != expected or not whole:
        raise _size_mistake(path, expected, len(data), "" if whole else ", a gzip file cut short")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _contents(path: Path) -> tuple[bytes, bool]:
    """Bytes of a file, unzipped where its name says so, and whether the zipped stream ended."""
    data = _limited(path, _LARGEST_FILE)
    if path.suffix != ".gz":
        return data, True
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: gzip's header and checksum
    try:
        return stream.decompress(data, _LARGEST_FILE), stream.eof
    except zlib.error as error:
        raise Mistake(
            f"{path} must be a gzip file, got {len(data):,} bytes that are not ({error}); "
            "delete it and download again"
        ) from error


def read_cifar10_binary(paths: Sequence[Path]) -> Split:
    """Read batches of CIFAR-10's binary version: records of one label and 3072 pixels."""
    expected = _CIFAR10_IMAGES * _CIFAR10_RECORD
    for path in paths:
        if (found := path.stat().st_size) != expected:
            raise _size_mistake(path, expected, found)
    records = np.concatenate([np.fromfile(path, np.uint8) for path in paths])
    records = records.reshape(-1, _CIFAR10_RECORD)
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def read_cifar10_python(paths: Sequence[Path]) -> Split:
    """Read batches of CIFAR-10's Python version through an unpickler that only records."""
    batches = [_cifar10_batch(path) for path in paths]
    images = np.concatenate([batch.images for batch in batches])
    return Split(images, np.concatenate([batch.labels for batch in batches]))


class _Recorded:
    """Stands in for whatever a pickle builds: keeps arguments and state, does nothing."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _RecordingUnpickler(pickle.Unpickler):
    """Admits the names with which NumPy's arrays are pickled, and gives none of them life."""

    _ADMITTED = (
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.ndarray",
        "numpy.dtype",
        "_codecs.encode",  # Python 3's bytes in protocols 0 to 2
    )

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self._ADMITTED:
            raise Mistake(f"a pickle must hold arrays only, got {module}.{name}")
        return _Recorded


def _cifar10_batch(path: Path) -> Split:
    data = _limited(path, _LARGEST_PICKLE)
    try:
        batch = _RecordingUnpickler(io.BytesIO(data), encoding="latin1").load()
        images = _recorded_array(batch["data"]).reshape(_CIFAR10_IMAGES, 3, 32, 32)
        labels = np.array(batch["labels"], np.int64).reshape(_CIFAR10_IMAGES)
    except Mistake as mistake:
        raise Mistake(f"{path} was refused: {mistake}; delete it and download again") from mistake
    except Exception as error:  # a damaged pickle can raise anything
        raise Mistake(
            f"{path} must be a batch of CIFAR-10's Python version (about 31,000,000 bytes), "
            f"got {len(data):,} bytes that are not ({type(error).__name__}: {error}); "
            "delete it and download again"
        ) from error
    return Split(images, labels)


def _recorded_array(recorded: Any) -> np.ndarray:
    """Array of bytes from what NumPy pickles: (version, shape, dtype, column-major, bytes)."""
    _, shape, dtype, column_major, data = recorded.state
    if dtype.arguments[0] != "u1":
        raise TypeError(f"dtype must be u1, got {dtype.arguments[0]!r}")
    if isinstance(data, _Recorded):
        data = data.arguments[0]
    if isinstance(data, str):
        data = data.encode("latin1")
    return np.frombuffer(data, np.uint8).reshape(shape, order="F" if column_major else "C")


def read_svhn(paths: Sequence[Path]) -> Split:
    """Read a MATLAB file of SVHN's cropped digits, in which label 10 means 0."""
    import scipy.io

    (path,) = paths
    try:
        described = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path)}
    except Exception as error:  # a damaged file can raise anything
        _svhn_mistake(path, f"an unreadable file ({type(error).__name__}: {error})")
    shape, kind = described.get("X", ((), ""))
    labels_shape, _ = described.get("y", ((), ""))
    if (shape[:3], kind, labels_shape) != ((32, 32, 3), "uint8", (*shape[3:], 1)):
        _svhn_mistake(path, f"{described}")
    if math.prod(shape) > _LARGEST_FILE:
        _svhn_mistake(path, f"{shape[3]:,} images")
    try:
        variables = scipy.io.loadmat(path, variable_names=["X", "y"])
    except Exception as error:
        _svhn_mistake(path, f"a damaged file ({type(error).__name__}: {error})")
    labels = variables["y"].reshape(-1).astype(np.int64)
    if labels.min(initial=1) < 1:
        _svhn_mistake(path, f"label {labels.min()}")
    return Split(variables["X"].transpose(3, 2, 0, 1), np.where(labels == 10, 0, labels))


def _svhn_mistake(path: Path, found: str) -> NoReturn:
    published = {"train_32x32.mat": 182_040_794, "test_32x32.mat": 64_275_384}
    raise Mistake(
        f"{path} must be a MATLAB file of {published[path.name]:,} bytes with "
        "X (32, 32, 3, images) uint8 and y (images, 1) in 1 to 10, "
        f"got {path.stat().st_size:,} bytes: {found}; "
        "delete it and download again"
    )
