"""Images of any size that stay in their files until they are needed, as for ImageNet.

A test image is the middle of its file: the shorter side becomes 256, then 224 × 224 are cropped.
A training image is a random part of its file, resized to 224 × 224.               [Szegedy+15]
Both are as in the field's own code, so that its weights and logs are comparable.
"""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.data.image_folder import image_classes, image_names, reading_order
from macer.data.photograph import (
    LARGEST_IMAGE,
    THREADS,
    loaded_image,
    opened_image,
    refusing_damage,
    whole_image,
)
from macer.data.split import Split
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from PIL import Image, ImageFile

SIDE = 224
SHORTER_SIDE = 256

_TRIES = 10
_NARROWEST, _WIDEST = 3 / 4, 4 / 3  # width : height

Box = tuple[int, int, int, int]  # left, top, right, bottom


class ImageFiles:
    """Images in files, for a data set whose pixels are too large for one array.

    Like an array it has a shape and can be indexed; np.asarray() reads the middle of each file.

    Args:
        folder: the names are relative to it.
        names: the files' names.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = names
        self.shape = (len(names), 3, SIDE, SIDE)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, places: slice | Sequence[int]) -> "ImageFiles":
        names = self.names[places] if isinstance(places, slice) else [self.names[i] for i in places]
        return ImageFiles(self.folder, names)

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        pixels = np.empty(self.shape, np.uint8)
        with ThreadPoolExecutor(THREADS) as pool:
            for i, image in enumerate(pool.map(self.middle, range(len(self)))):
                pixels[i] = image
        return pixels

    def middle(self, i: int) -> np.ndarray:
        """The middle of a file, (3, 224, 224) uint8."""
        return read_middle(self.folder / self.names[i])

    def part(self, i: int, least: float, random: np.random.Generator) -> np.ndarray:
        """A random part of a file with at least this share of its area, (3, 224, 224) uint8."""
        with opened_image(self.folder / self.names[i]) as image:
            box = random_box(image.width, image.height, least, random)
            return _channels_first(part_of(image, box))

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The name of each file and its size in bytes."""
        for name in self.names:
            yield name, (self.folder / name).stat().st_size


def read_middle(file: Path) -> np.ndarray:
    """The shorter side resized to 256, then the central 224 × 224: (3, 224, 224) uint8."""
    with opened_image(file) as image:
        return middle_of(image)


def middle_of(image: "ImageFile.ImageFile") -> np.ndarray:
    """The middle of an opened image, as `read_middle` has it."""
    from PIL import Image

    shorter = min(image.size)
    width, height = (side * SHORTER_SIDE // shorter for side in image.size)
    if width * height > LARGEST_IMAGE:
        raise Mistake(
            f"{os.fsdecode(image.filename)} must be less narrow: with a shorter side of "
            f"{SHORTER_SIDE} it would have {width}×{height} pixels, got "
            f"{image.width}×{image.height}"
        )
    pixels = whole_image(image, "RGB").resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
    return _channels_first(pixels.crop((left, top, left + SIDE, top + SIDE)))


def part_of(image: "ImageFile.ImageFile", box: Box) -> "Image.Image":
    """A part of an opened image, resized to 224 × 224; for training alone.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the part still keeps 224 pixels a side.
    Its pixels then differ a little from those of the whole image. Test images are never read so:
    certificates are bound to their pixels.
    """
    from PIL import Image

    width, height = image.size
    left, top, right, bottom = box
    share = max(SIDE / (right - left), SIDE / (bottom - top))
    if image.format == "JPEG" and share <= 0.5:
        image.draft(None, (math.ceil(share * width), math.ceil(share * height)))
    pixels = loaded_image(image)
    if pixels.size == (width, height):
        part, inside = pixels.crop(box), None  # crop first: what is outside must not mix in
    else:
        scale = round(width / pixels.width)
        part, inside = pixels, (left / scale, top / scale, right / scale, bottom / scale)
    if part.mode != "RGB":
        with refusing_damage(os.fsdecode(image.filename)):
            part = part.convert("RGB")
    return part.resize((SIDE, SIDE), Image.Resampling.BILINEAR, inside)


def random_box(width: int, height: int, least: float, random: np.random.Generator) -> Box:
    """A random part of an image.                                                 [Szegedy+15]

    area ~ U(least, 1) · width · height,  log ratio ~ U(log ¾, log 4⁄3)
    w = √(area · ratio),  h = √(area / ratio),  at a random place;  the first of ten draws that fits
    If none fits: the largest middle part whose ratio is within [¾, 4⁄3].
    """
    for _ in range(_TRIES):
        area = random.uniform(least, 1.0) * width * height
        ratio = math.exp(random.uniform(math.log(_NARROWEST), math.log(_WIDEST)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = (int(random.integers(rest + 1)) for rest in (width - w, height - h))
            return _box(left, top, w, h)
    w = min(width, round(height * _WIDEST))
    h = min(height, round(width / _NARROWEST))
    return _box((width - w) // 2, (height - h) // 2, w, h)


def _box(left: int, top: int, width: int, height: int) -> Box:
    return left, top, left + width, top + height


def _channels_first(image: "Image.Image") -> np.ndarray:
    """(3, height, width) uint8; each channel by itself takes a third of the time of a transpose."""
    pixels = np.empty((3, image.height, image.width), np.uint8)
    for channel, name in zip(pixels, "RGB", strict=True):
        content = image.tobytes("raw", name)
        channel[:] = np.frombuffer(content, np.uint8).reshape(channel.shape)
    return pixels


def read_image_files(paths: Sequence[Path]) -> Split:
    """List the files FOLDER/CLASS/*.jpg, training files in mixed order; no pixels are read."""
    (folder,) = paths
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(image_classes(folder.parent, ("train", "val"))):
        files = image_names(folder / name)
        names += [f"{name}/{file}" for file in files]
        labels += [label] * len(files)
    if not names:
        raise Mistake(
            f"no images in {folder}: expected {folder}/CLASS/*.JPEG, each in a folder of its class"
        )
    order = reading_order(folder, len(names))
    return Split(ImageFiles(folder, [names[i] for i in order]), np.array(labels, np.int64)[order])
