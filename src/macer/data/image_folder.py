"""Images in folders named after their classes: train/CLASS/*.png or *.jpg, and test/ likewise."""

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macer.data.formats import SPLITS, Split
from macer.errors import Mistake
from macer.system.files import opened

if TYPE_CHECKING:
    from PIL import Image, ImageFile

_IMAGE_KINDS = (".png", ".jpg", ".jpeg")
LARGEST_IMAGE = 1 << 26  # pixels
MOST_PIXELS = 1 << 33  # bytes of a data set in memory
MOST_CLASSES = 1 << 16
_LARGEST_FILE = 1 << 28  # bytes of an image
_MOST_SCANS = 50  # of a JPEG, each of which goes over all its pixels; others have about ten
_LARGE_IMAGE = 1 << 22  # pixels; of larger images one is decoded at a time, in about 14 bytes each
_LARGE_IMAGES = threading.Lock()
_EIGHT_BIT_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")


def image_classes(folder: Path, splits: tuple[str, str] = SPLITS) -> tuple[str, ...]:
    """Sorted class names: the folders in those of the two splits, which must agree."""
    train, test = splits
    names = {split: found for split in splits if (found := _class_folders(folder / split))}
    if not names:
        raise Mistake(f"no images in {folder}: expected {folder / train}/CLASS/*.png or *.jpg")
    if len(names) == 2 and (lone := sorted(names[train] ^ names[test])):
        only = train if lone[0] in names[train] else test
        raise Mistake(
            f"classes in {folder / train} and {folder / test} must agree, "
            f"got {lone[0]!r} in {only} only"
        )
    return tuple(sorted(set().union(*names.values())))


def _class_folders(folder: Path) -> set[str]:
    paths = folder.iterdir() if folder.is_dir() else ()
    found = (path.name for path in paths if path.is_dir() and not path.name.startswith("."))
    names = set(islice(found, MOST_CLASSES + 1))
    if len(names) > MOST_CLASSES:
        raise Mistake(f"{folder} must have at most {MOST_CLASSES:,} folders of classes, got more")
    return names


def reading_order(folder: Path, images: int) -> NDArray[np.int64]:
    """The order of a split's images, which lie class after class: those of training are mixed.

    So the last ones, which are held out, and the first ones, which have labels, are of all classes.
    """
    if folder.name != "train":
        return np.arange(images)
    return np.random.Generator(np.random.Philox(0)).permutation(images)


def image_names(folder: Path) -> list[str]:
    """Sorted names of the image files in a folder; none if there is no such folder."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in paths if path.suffix.lower() in _IMAGE_KINDS)


def read_image_folder(paths: Sequence[Path]) -> Split:
    """Read folder/CLASS/*.png or *.jpg: one channel if every image of both splits is grey."""
    (folder,) = paths
    classes = image_classes(folder.parent)
    files = {split: _with_labels(folder.parent / split, classes) for split in SPLITS}
    mode, size = _common_format(file for split in SPLITS for file, _ in files[split])
    listed = files[folder.name]
    if not listed:
        raise Mistake(f"no images in {folder}: expected {folder}/CLASS/*.png or *.jpg")
    chosen = [listed[i] for i in reading_order(folder, len(listed))]
    shape = (len(chosen), len(mode), size[1], size[0])
    if math.prod(shape) > MOST_PIXELS:
        raise Mistake(
            f"{folder} must take at most {MOST_PIXELS:,} bytes of memory, got {len(chosen):,} "
            f"images of {size[0]}×{size[1]}, which take {math.prod(shape):,}; resize them"
        )
    images = np.empty(shape, np.uint8)
    for image, (file, _) in zip(images, chosen, strict=True):
        image[:] = read_image(file, channels=len(mode))
    return Split(images, np.array([label for _, label in chosen], np.int64))


def _with_labels(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    return [
        (folder / name / file, label)
        for label, name in enumerate(classes)
        for file in image_names(folder / name)
    ]


def _common_format(files: Iterable[Path]) -> tuple[str, tuple[int, int]]:
    """The mode, 'L' or 'RGB', and the one size (width, height) of all files."""
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
def opened_image(file: Path) -> "Iterator[ImageFile.ImageFile]":
    """The image with its header decoded and its pixels not."""
    from PIL import Image

    with opened(file, limit=_LARGEST_FILE) as stream:
        try:
            image = Image.open(stream, formats=("PNG", "JPEG"))
        except Image.DecompressionBombError as error:
            raise Mistake(f"{file} must have at most {LARGEST_IMAGE:,} pixels: {error}") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise Mistake(f"{file} must be a PNG or JPEG image: {_reason(error)}") from error
        image.filename = str(file)
        _check_image(image)
        with _LARGE_IMAGES if image.width * image.height > _LARGE_IMAGE else nullcontext():
            yield image


def _check_image(image: "ImageFile.ImageFile") -> None:
    file = os.fsdecode(image.filename)
    if image.width * image.height > LARGEST_IMAGE:
        found = f"{image.width}×{image.height}"
        raise Mistake(f"{file} must have at most {LARGEST_IMAGE:,} pixels, got {found}")
    if image.mode not in _EIGHT_BIT_MODES:
        raise Mistake(f"{file} must have 8 bits a channel, got mode {image.mode!r}; convert it")
    if image.format == "PNG" and getattr(image, "is_animated", False):
        raise Mistake(f"{file} must be one image, got an animation; save one frame")


def _reason(error: Exception) -> str:
    """What Pillow says, without the stream that it was given."""
    return str(error).partition(" <_io.")[0]


def whole_image(image: "ImageFile.ImageFile", mode: str) -> "Image.Image":
    """The image with its pixels read, in mode 'L' or 'RGB'."""
    file = os.fsdecode(image.filename)
    if (scans := _scans(image)) > _MOST_SCANS:
        raise Mistake(f"{file} must have at most {_MOST_SCANS} scans, got {scans:,}; save it anew")
    try:
        return image.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        raise Mistake(f"{file} must be a whole PNG or JPEG image: {error}") from error


def _scans(image: "ImageFile.ImageFile") -> int:
    """How often a JPEG goes over its pixels."""
    if image.format == "PNG" or image.fp is None:
        return 0
    image.fp.seek(0)  # Pillow itself seeks to the pixels
    return image.fp.read(_LARGEST_FILE).count(b"\xff\xda")


def read_image(file: Path, *, channels: int) -> np.ndarray:
    """One file as (channels, height, width) uint8; one channel is grey, three are RGB."""
    with opened_image(file) as image:
        pixels = np.asarray(whole_image(image, "L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)
