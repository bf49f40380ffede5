"""Read images from folders named after classes: train/CLASS/*.png or *.jpg, test/ likewise."""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macer.data.split import SPLITS, Split
from macer.errors import Mistake
from macer.system.files import opened

if TYPE_CHECKING:
    from PIL import Image, ImageFile

_IMAGE_KINDS = (".png", ".jpg", ".jpeg")
LARGEST_IMAGE = 1 << 26  # pixels
MAX_PIXELS = 1 << 33  # bytes of a data set in memory
MAX_CLASSES = 1 << 16
_LARGEST_FILE = 1 << 28  # bytes of an image
_MAX_SCANS = 50  # of a JPEG; each scan decodes all its pixels, and about ten are usual
_LARGE_IMAGE = 1 << 22  # pixels; decoding takes about 14 bytes for each of them
_LARGE_IMAGES = threading.Lock()  # one large image is decoded at a time
_EIGHT_BIT_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")


def image_classes(folder: Path, splits: tuple[str, str] = SPLITS) -> tuple[str, ...]:
    """The sorted class names: the names of the folders in both splits, which must agree."""
    train, test = splits
    names = {split: classes for split in splits if (classes := _class_folders(folder / split))}
    if not names:
        raise Mistake(f"no images in {folder}: expected {folder / train}/CLASS/*.png or *.jpg")
    if len(names) == 2 and (unmatched := sorted(names[train] ^ names[test])):
        split = train if unmatched[0] in names[train] else test
        raise Mistake(
            f"classes in {folder / train} and {folder / test} must agree, "
            f"got {unmatched[0]!r} in {split} only"
        )
    return tuple(sorted(set().union(*names.values())))


def _class_folders(folder: Path) -> set[str]:
    paths = folder.iterdir() if folder.is_dir() else ()
    names = (path.name for path in paths if path.is_dir() and not path.name.startswith("."))
    classes = set(islice(names, MAX_CLASSES + 1))
    if len(classes) > MAX_CLASSES:
        raise Mistake(f"{folder} must have at most {MAX_CLASSES:,} folders of classes, got more")
    return classes


def reading_order(folder: Path, images: int) -> NDArray[np.int64]:
    """The order in which a split's images are read: class after class, but mixed for training.

    So the last training images, which may be held out, and the first ones, which may be the only
    ones with labels, come from all classes.
    """
    if folder.name != "train":
        return np.arange(images)
    return np.random.Generator(np.random.Philox(0)).permutation(images)


def image_names(folder: Path) -> list[str]:
    """The sorted names of the image files in a folder; none if the folder does not exist."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in paths if path.suffix.lower() in _IMAGE_KINDS)


def read_image_folder(paths: Sequence[Path]) -> Split:
    """Read folder/CLASS/*.png or *.jpg; one channel if every image of both splits is grey."""
    (folder,) = paths
    classes = image_classes(folder.parent)
    files = {split: _with_labels(folder.parent / split, classes) for split in SPLITS}
    mode, size = _common_format(file for split in SPLITS for file, _ in files[split])
    by_class = files[folder.name]
    if not by_class:
        raise Mistake(f"no images in {folder}: expected {folder}/CLASS/*.png or *.jpg")
    ordered = [by_class[i] for i in reading_order(folder, len(by_class))]
    shape = (len(ordered), len(mode), size[1], size[0])
    if math.prod(shape) > MAX_PIXELS:
        raise Mistake(
            f"{folder} must take at most {MAX_PIXELS:,} bytes of memory, got {len(ordered):,} "
            f"images of {size[0]}×{size[1]}, which take {math.prod(shape):,}; resize them"
        )
    images = np.empty(shape, np.uint8)
    for image, (file, _) in zip(images, ordered, strict=True):
        image[:] = read_image(file, channels=len(mode))
    return Split(images, np.array([label for _, label in ordered], np.int64))


def _with_labels(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    return [
        (folder / name / file, label)
        for label, name in enumerate(classes)
        for file in image_names(folder / name)
    ]


def _common_format(files: Iterable[Path]) -> tuple[str, tuple[int, int]]:
    """The mode, 'L' or 'RGB', and the size (width, height) that all files share."""
    mode, size = "L", None
    for file in files:
        with opened_image(file) as image:
            if size is not None and image.size != size:
                raise Mistake(
                    f"all images must have one size, {size[0]}×{size[1]} (width×height) so far, "
                    f"got {image.size[0]}×{image.size[1]} in {file}; resize them"
                )
            size = image.size
            mode = mode if image.mode == "L" else "RGB"
    return mode, size or (0, 0)


@contextmanager
def opened_image(
    file: Path, content: bytes | None = None, most: int | None = None
) -> "Iterator[ImageFile.ImageFile]":
    """Open an image: its header is decoded and checked, its pixels are not.

    Args:
        content: the bytes of an image that is in no file; `file` then is its name in messages.
        most: pixels that it may have; LARGEST_IMAGE by default.
    """
    from PIL import Image

    most = LARGEST_IMAGE if most is None else most
    with opened(file, limit=_LARGEST_FILE) if content is None else BytesIO(content) as stream:
        try:
            image = Image.open(stream, formats=("PNG", "JPEG"))
        except Image.DecompressionBombError as error:
            raise Mistake(f"{file} must have at most {most:,} pixels: {error}") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise Mistake(f"{file} must be a PNG or JPEG image: {_reason(error)}") from error
        image.filename = str(file)
        _check_image(image, most)
        with _LARGE_IMAGES if image.width * image.height > _LARGE_IMAGE else nullcontext():
            yield image


def _check_image(image: "ImageFile.ImageFile", most: int) -> None:
    file = os.fsdecode(image.filename)
    if image.width * image.height > most:
        size = f"{image.width}×{image.height}"
        raise Mistake(f"{file} must have at most {most:,} pixels, got {size}")
    if image.mode not in _EIGHT_BIT_MODES:
        raise Mistake(f"{file} must have 8 bits per channel, got mode {image.mode!r}; convert it")
    if image.format == "PNG" and getattr(image, "is_animated", False):
        raise Mistake(f"{file} must be one image, got an animation; save one frame")


def _reason(error: Exception) -> str:
    """Pillow's message without the name of its stream."""
    return str(error).partition(" <_io.")[0]


def whole_image(image: "ImageFile.ImageFile", mode: str) -> "Image.Image":
    """Read the pixels of an image, in mode 'L' or 'RGB'."""
    file = os.fsdecode(image.filename)
    if (scans := _scans(image)) > _MAX_SCANS:
        raise Mistake(f"{file} must have at most {_MAX_SCANS} scans, got {scans:,}; save it again")
    try:
        return image.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        raise Mistake(f"{file} must be a whole PNG or JPEG image: {error}") from error


def _scans(image: "ImageFile.ImageFile") -> int:
    """The number of scans of a JPEG."""
    if image.format == "PNG" or image.fp is None:
        return 0
    image.fp.seek(0)  # Pillow itself seeks to the pixels
    return image.fp.read(_LARGEST_FILE).count(b"\xff\xda")


def read_image(file: Path, *, channels: int) -> np.ndarray:
    """One file as (channels, height, width) uint8; one channel is grey, three are RGB."""
    with opened_image(file) as image:
        return pixels_of(image, channels=channels)


def pixels_of(image: "ImageFile.ImageFile", *, channels: int) -> np.ndarray:
    """An opened image as (channels, height, width) uint8; one channel is grey, three are RGB."""
    pixels = np.asarray(whole_image(image, "L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)
