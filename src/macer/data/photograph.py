"""One photograph: open its file, turn it upright, convert its colours, fit it to a size.

What is done to a file, in this order:

1. It is turned upright, as its EXIF orientation says.
2. 16 bits become 8, the upper ones. What is transparent is laid over white.
3. It becomes RGB, or grey if the whole data set is grey. Colour profiles are not applied.
4. With a size: it is resized until it just covers the size, and the middle of it is cropped.
"""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from macer.system.errors import Mistake
from macer.system.files import opened

if TYPE_CHECKING:
    from PIL import Image, ImageFile

KINDS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
LARGEST_IMAGE = 1 << 26  # pixels
# Decoding and resizing release Python's lock, so threads use all cores of this process.
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
THREADS = min(_CORES or 1, 32)

_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")
_AN_IMAGE = "PNG, JPEG, WebP, BMP or TIFF image"
_LARGEST_FILE = 1 << 28  # bytes of an image
_READ_AT_ONCE = 1 << 22  # bytes of an image; several are read at a time
_MAX_SCANS = 50  # of a JPEG; each scan decodes all its pixels, and about ten are usual
_LARGE_IMAGE = 1 << 22  # pixels; decoding takes about 14 bytes for each of them
_LARGE_IMAGES = threading.Lock()  # one large image is decoded at a time
_EIGHT_BIT_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_ORIENTATION = 0x0112  # EXIF's tag; 1 is upright
_TURNED = range(2, 9)
_ON_ITS_SIDE = range(5, 9)

Size = tuple[int, int]  # height, width


class Traits(NamedTuple):
    """What the header of a file says."""

    form: str  # such as JPEG
    # Once it is upright, unless a PNG says only behind its pixels how it is to be turned.
    size: Size
    grey: bool  # one channel of 8 or 16 bits
    converted: tuple[str, ...]  # what is done to it, in words


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
            image = Image.open(_in_memory(stream), formats=_FORMATS)
        except Image.DecompressionBombError as error:
            raise Mistake(f"{file} must have at most {most:,} pixels: {error}") from error
        except Exception as error:  # a damaged header can raise anything
            raise Mistake(f"{file} must be a {_AN_IMAGE}: {_reason(error)}") from error
        image.filename = str(file)
        _check_image(image, most)
        with _LARGE_IMAGES if image.width * image.height > _LARGE_IMAGE else nullcontext():
            yield image


def _in_memory(stream: BinaryIO) -> BinaryIO:
    """The stream, a small file's bytes read at once.

    Each call to the system lets go of Python's lock, for which other threads then wait in turn.
    """
    if isinstance(stream, BytesIO):
        return stream
    size = os.fstat(stream.fileno()).st_size
    return BytesIO(stream.read(size)) if size <= _READ_AT_ONCE else stream


def _check_image(image: "ImageFile.ImageFile", most: int) -> None:
    file = os.fsdecode(image.filename)
    if image.width * image.height > most:
        size = f"{image.width}×{image.height}"
        raise Mistake(f"{file} must have at most {most:,} pixels, got {size}")
    # Some cameras put a second picture behind the first, which Pillow calls MPO; the first counts.
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise Mistake(f"{file} must be one image, got an animation; save one frame")


def _reason(error: Exception) -> str:
    """Pillow's message without the name of its stream."""
    return str(error).partition(" <_io.")[0]


@contextmanager
def refusing_damage(file: str) -> Iterator[None]:
    """Refuse a file whose pixels or palette are damaged; Pillow then raises anything."""
    try:
        yield
    except Exception as error:
        reason = _reason(error) or "its colours cannot be read"
        raise Mistake(f"{file} must be a whole {_AN_IMAGE}: {reason}") from error


def whole_image(image: "ImageFile.ImageFile", mode: str) -> "Image.Image":
    """Read the pixels of an image as they lie, in mode 'L' or 'RGB'."""
    loaded = loaded_image(image)
    with refusing_damage(os.fsdecode(image.filename)):
        return loaded.convert(mode)


def loaded_image(image: "ImageFile.ImageFile") -> "Image.Image":
    """Read the pixels of an image as they lie, in its own mode, which has 8 bits per channel."""
    file = os.fsdecode(image.filename)
    if image.mode not in _EIGHT_BIT_MODES:
        raise Mistake(f"{file} must have 8 bits per channel, got mode {image.mode!r}; convert it")
    return _loaded(image)


def _loaded(image: "ImageFile.ImageFile") -> "Image.Image":
    """The image once its pixels are decoded."""
    file = os.fsdecode(image.filename)
    if (scans := _scans(image)) > _MAX_SCANS:
        raise Mistake(f"{file} must have at most {_MAX_SCANS} scans, got {scans:,}; save it again")
    with refusing_damage(file):
        image.load()
    return image


def _scans(image: "ImageFile.ImageFile") -> int:
    """The number of scans of a JPEG."""
    if image.format not in ("JPEG", "MPO") or image.fp is None:
        return 0
    size = image.fp.seek(0, os.SEEK_END)
    image.fp.seek(0)  # Pillow itself seeks to the pixels
    content = image.fp.read(min(size, _LARGEST_FILE))
    # FF DA at even places and at odd ones; bytes.count takes eight times as long.
    pairs = (np.frombuffer(content, "<u2", (len(content) - odd) // 2, odd) for odd in (0, 1))
    return int(sum(np.count_nonzero(each == 0xDAFF) for each in pairs))


def traits(file: Path) -> Traits:
    """What the header of a file says; its pixels are not decoded."""
    with opened_image(file) as image:
        # To look for a PNG's EXIF behind its pixels, Pillow would decode them.
        known = image.format != "PNG" or "exif" in image.info
        turn = _orientation(image) if known else 1
        deep = _is_deep(image)
        grey = image.mode == "L" or image.mode.startswith("I;16")
        with refusing_damage(str(file)):
            transparent = image.has_transparency_data
        width, height = image.size
        if turn in _ON_ITS_SIDE and image.format != "TIFF":  # Pillow itself turns a TIFF's size
            width, height = height, width
        what = {
            "16-bit made 8-bit": deep,
            "transparent laid over white": not deep and transparent,
            "palette made RGB": image.mode in ("P", "PA"),
            "black and white made RGB": image.mode == "1",
            f"{image.mode} made RGB": image.mode in ("LA", "CMYK", "YCbCr"),
        }
        form = {"MPO": "JPEG", "WEBP": "WebP"}.get(image.format or "", image.format or "")
        return Traits(
            form, (height, width), grey, tuple(text for text, does in what.items() if does)
        )


def _orientation(image: "Image.Image") -> int | None:
    """EXIF's orientation, 1 if there is none; None if it cannot be read."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged EXIF can raise anything
        return None
    return value if isinstance(value, int) else None


def _is_deep(image: "ImageFile.ImageFile") -> bool:
    """Whether a channel has 16 bits in the file; Pillow reads the upper 8 of those in colour."""
    return image.mode.startswith("I;16") or any(";16" in str(tile[3]) for tile in image.tile)


class Photograph(NamedTuple):
    """A file's pixels, and how they were turned."""

    pixels: np.ndarray  # (channels, height, width) uint8
    turned: str  # in words; "" if they were not


def read_photograph(file: Path, *, channels: int, size: Size | None = None) -> Photograph:
    """One file; one channel is grey, three are RGB.

    Args:
        size: (height, width) to fit the image to; by default it keeps its own.
    """
    with opened_image(file) as image:
        return photograph_of(image, channels=channels, size=size)


def photograph_of(image: "ImageFile.ImageFile", *, channels: int, size: Size | None) -> Photograph:
    """As `read_photograph`, of an opened image."""
    file = os.fsdecode(image.filename)
    if image.format == "TIFF":  # which Pillow itself turns when it decodes it
        turn, upright = _orientation(image), _loaded(image)
    else:
        loaded = _loaded(image)  # a PNG's EXIF may stand behind its pixels
        turn = _orientation(loaded)
        upright = _upright(loaded, turn)
    converted = _converted(upright, "L" if channels == 1 else "RGB", file)
    levels = np.asarray(converted if size is None else _fitted(converted, size, file))
    turned = "turned upright" if turn in _TURNED else ""
    return Photograph(
        levels.reshape(*levels.shape[:2], -1).transpose(2, 0, 1),
        "with unreadable EXIF taken as they lie" if turn is None else turned,
    )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide Pillow's warnings about metadata; to be entered before threads begin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _upright(image: "Image.Image", orientation: int | None) -> "Image.Image":
    """The image turned and mirrored as its EXIF orientation says."""
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation or 1)
    return image if turn is None else image.transpose(turn)


def _converted(image: "Image.Image", mode: str, file: str) -> "Image.Image":
    """The image in mode 'L' or 'RGB', over white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert(mode)
    if image.mode not in _EIGHT_BIT_MODES:
        raise Mistake(
            f"{file} must have 8 or 16 bits per channel, got mode {image.mode!r}; convert it"
        )
    with refusing_damage(file):  # a palette may be missing, or shorter than it says
        if image.has_transparency_data:
            ground = Image.new("RGBA", image.size, "white")
            ground.alpha_composite(image.convert("RGBA"))
            image = ground
        return image.convert(mode)


def _fitted(image: "Image.Image", size: Size, file: str) -> "Image.Image":
    """The middle of the image, after resizing it until it just covers the size."""
    from PIL.Image import Resampling

    height, width = size
    if image.width * height <= image.height * width:  # narrower than the size
        covering = (width, image.height * width // image.width)
    else:
        covering = (image.width * height // image.height, height)
    if covering[0] * covering[1] > LARGEST_IMAGE:
        raise Mistake(
            f"{file} must be less narrow: to cover {width}×{height} it would have "
            f"{covering[0]}×{covering[1]} pixels, got {image.width}×{image.height}"
        )
    left, top = (covering[0] - width) // 2, (covering[1] - height) // 2
    resized = image.resize(covering, Resampling.BILINEAR)
    return resized.crop((left, top, left + width, top + height))
