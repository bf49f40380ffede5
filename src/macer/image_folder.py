"""Images in folders named after their classes: train/CLASS/*.png or *.jpg, and test/ likewise."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macer.formats import SPLITS, Split
from macer.mistake import Mistake

if TYPE_CHECKING:
    from PIL import Image, ImageFile

_IMAGE_KINDS = (".png", ".jpg", ".jpeg")
LARGEST_IMAGE = 1 << 26  # pixels
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
    return {path.name for path in paths if path.is_dir() and not path.name.startswith(".")}


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
    images = np.empty((len(chosen), len(mode), size[1], size[0]), np.uint8)
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


def opened_image(file: Path) -> "ImageFile.ImageFile":
    """The image with its header decoded and its pixels not."""
    from PIL import Image

    try:
        image = Image.open(file, formats=("PNG", "JPEG"))
    except Image.DecompressionBombError as error:
        raise Mistake(f"{file} must have at most {LARGEST_IMAGE:,} pixels: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise Mistake(f"{file} must be a PNG or JPEG image: {error}") from error
    if image.width * image.height > LARGEST_IMAGE:
        image.close()
        found = f"{image.width}×{image.height}"
        raise Mistake(f"{file} must have at most {LARGEST_IMAGE:,} pixels, got {found}")
    if image.mode not in _EIGHT_BIT_MODES:
        image.close()
        raise Mistake(f"{file} must have 8 bits a channel, got mode {image.mode!r}; convert it")
    return image


def whole_image(image: "ImageFile.ImageFile", mode: str) -> "Image.Image":
    """The image with its pixels read, in mode 'L' or 'RGB'."""
    try:
        return image.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        file = os.fsdecode(image.filename)
        raise Mistake(f"{file} must be a whole PNG or JPEG image: {error}") from error


def read_image(file: Path, *, channels: int) -> np.ndarray:
    """One file as (channels, height, width) uint8; one channel is grey, three are RGB."""
    with opened_image(file) as image:
        pixels = np.asarray(whole_image(image, "L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)
