"""Turn a caller's inputs and labels, in any of several forms, into a checked `Split`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from macer.data.image_files import ImageFiles
from macer.data.sets import DATASETS
from macer.data.split import ARRAYS, Images, Split
from macer.data.value_range import IMAGE_RANGE, ValueRange, check_values, checked_range
from macer.system.errors import Mistake
from macer.system.text import shape_text
from macer.system.typed import shown, wrong

Data: TypeAlias = Split | tuple[Any, Any] | Sequence[tuple[Any, Any]] | Dataset[Any]

_FORMS = "(images, labels), a sequence of (image, label) pairs, or what macer.data.load returns"
_IMAGE_COLUMNS, _LABEL_COLUMNS = ("image", "img"), ("label", "labels")
_SHAPE = "(images, channels, height, width) or (images, height, width)"
_BLOCK = 1024  # images that are checked at once; float64 takes eight times the memory of pixels
_SLACK = 1e-4  # of a level; float32 rounds k/255 by less than this


def as_split(data: Data, value_range: ValueRange = IMAGE_RANGE) -> Split:
    """Check a `Split`, a pair of arrays or a sequence of (image, label) pairs; return a `Split`.

    Arrays are NumPy arrays, tensors on any device, or lists. 8-bit images stay as they are. Floats
    in [0, 1] must be multiples of 1/255, as floats of 8-bit images are, and become 8-bit images.
    Each image of a sequence, such as a torch Dataset, is read once and may be a Pillow image. So
    may the images of a data set with columns, image and label, as those of Hugging Face have them.

    With another value_range than (0, 1) they are no images, but floats of any shape (inputs, …),
    and become float32.

    Args:
        data: images (images, channels, height, width), or (images, height, width), with labels.
        value_range: the least and the largest value that is allowed; any finite one if None.
    """
    value_range = checked_range(value_range)
    images, labels, dataset, classes = _parts(data)
    if value_range != IMAGE_RANGE:
        values = _inputs(_array("inputs", images), value_range)
        checked = _labels(_array("labels", labels), values)
        return Split(values, checked, dataset, classes, value_range=value_range)
    pixels = images if isinstance(images, ImageFiles) else _pixels(_array("images", images))
    if dataset == ARRAYS and isinstance(pixels, np.ndarray) and pixels.max() <= 1:
        raise Mistake(
            f"images must not all be black, got no value above {pixels.max()} of 255; "
            "multiply images of 0 and 1 by 255, and floats before they become whole numbers"
        )
    checked = _labels(_array("labels", labels), pixels)
    if isinstance(data, Split):
        return replace(data, images=pixels, labels=checked)
    return Split(pixels, checked, dataset, classes)


def class_names(classes: Sequence[str] | None, split: Split) -> tuple[str, ...]:
    """The names of the classes: the given ones, else those of the data set, else 0, 1, …"""
    if classes is None:
        known = DATASETS.get(split.dataset)
        names = split.classes or (known.classes if known else ()) or _numbers(split.labels)
    else:
        names = _names(classes)
    _check_below("labels", split.labels, len(names), "the number of classes")
    return names


def as_test_split(data: Data, training: Split, classes: Sequence[str]) -> Split:
    """The test images of a caller's own, which must have the training images' shape and classes."""
    test = as_split(data, training.value_range)
    if test.images.shape[1:] != training.images.shape[1:]:
        expected, got = (shape_text(each.images.shape[1:]) for each in (training, test))
        what = "images" if training.are_images else "inputs"
        raise Mistake(f"test {what} must be {expected}, as those of training, got {got}")
    class_names(tuple(classes), test)
    return test


class _Parts(NamedTuple):
    images: Any
    labels: Any
    dataset: str = ARRAYS
    classes: tuple[str, ...] = ()


def _parts(data: Any) -> _Parts:
    if isinstance(data, Split):
        return _Parts(data.images, data.labels, data.dataset, data.classes)
    if hasattr(data, "column_names"):
        return _columns(data)
    if _is_pair(data):
        return _Parts(*data)
    if isinstance(data, tuple):
        raise Mistake(f"data must be {_FORMS}, got a tuple of {len(data)}")
    if isinstance(data, str | bytes | Mapping | np.ndarray | Tensor) or not (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        raise wrong("data", _FORMS, data, "give the dataset of a loader, labels beside images")
    items = [_item(number, data[number]) for number in range(len(data))]
    return _Parts([image for image, _ in items], [label for _, label in items])


def _columns(data: Any) -> _Parts:
    """The columns of images and labels; the names of the classes, if the column has them."""
    if isinstance(data.column_names, Mapping):  # Hugging Face's DatasetDict
        raise Mistake(
            f"data must be one split, got {', '.join(map(str, data.column_names))}; give each by "
            'itself, such as data["train"] and test=data["test"]'
        )
    if not hasattr(data, "__len__"):
        raise wrong("data", "a data set in memory", data, "load it without streaming")
    known = list(data.column_names)
    image, label = (
        next((name for name in names if name in known), None)
        for names in (_IMAGE_COLUMNS, _LABEL_COLUMNS)
    )
    if image is None or label is None:
        raise Mistake(
            f"data must have the columns image and label, got {', '.join(map(str, known))}; "
            'data.rename_column("old", "image") renames one'
        )
    features = getattr(data, "features", None) or {}
    names = getattr(features.get(label), "names", None) if isinstance(features, Mapping) else None
    return _Parts(list(data[image]), list(data[label]), classes=_names(names) if names else ())


def _is_pair(data: Any) -> bool:
    """Whether data is (images, labels): a tuple, or the list that a loader makes of a batch."""
    if isinstance(data, list) and all(isinstance(part, tuple) for part in data):
        return False  # (image, label) pairs, perhaps two of them
    return isinstance(data, tuple | list) and len(data) == 2


def _item(number: int, item: Any) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        value = f"{len(item)} values" if isinstance(item, tuple | list) else shown(item)
        raise Mistake(f"data must be (image, label) pairs, got {value} as number {number}")
    image, label = item
    return image, label


def _array(name: str, values: Any) -> np.ndarray:
    """The values as a NumPy array."""
    if isinstance(values, list | tuple):
        _check_sizes(values)
        readable: Any = [_element(name, value) for value in values]
    else:
        readable = _element(name, values)
    try:
        return np.asarray(readable)
    except (ValueError, TypeError, RuntimeError):
        raise Mistake(
            f"{name} must be an array, got {type(values).__name__} of parts of different shapes or "
            "types; make them the same"
        ) from None


def _check_sizes(values: Sequence[Any]) -> None:
    """Refuse photographs of several sizes or modes, with what makes them alike."""
    kinds = {(*image.size, image.mode) for image in values if isinstance(image, Image.Image)}
    if len(kinds) > 1:
        first, second, *_ = (f"{width}×{height} {mode}" for width, height, mode in sorted(kinds))
        raise Mistake(
            f"images must have one size and mode, got {first} and {second}; "
            'image.convert("RGB").resize((64, 64)) makes them alike, and so does a folder of '
            "photographs with --size"
        )


def _element(name: str, value: Any) -> Any:
    """A value that NumPy can read: tensors come from their device, Pillow images channels first."""
    if isinstance(value, Tensor):
        try:
            return value.detach().cpu().numpy()
        except (TypeError, RuntimeError, NotImplementedError):
            kind = f"{value.layout} of {value.dtype}".replace("torch.", "")
            raise Mistake(
                f"{name} must be a tensor that NumPy can read, got {kind}; make it dense and "
                "float32 or uint8"
            ) from None
    if isinstance(value, Image.Image):
        if value.mode not in ("L", "RGB"):
            raise Mistake(
                f'{name} must be of mode L or RGB, got {value.mode}; image.convert("RGB") makes one'
            )
        return np.asarray(value) if value.mode == "L" else np.asarray(value).transpose(2, 0, 1)
    return value


def _pixels(images: np.ndarray) -> np.ndarray:
    """8-bit images of four dimensions."""
    if images.dtype.kind not in "iuf":
        remedy = '; images.astype("uint8") * 255 makes them' if images.dtype.kind == "b" else ""
        raise Mistake(f"images must be uint8, or floats in [0, 1], got {images.dtype}{remedy}")
    if not images.size:
        raise Mistake(f"images must not be empty, got shape {images.shape}")
    if images.ndim not in (3, 4):
        raise Mistake(
            f"images must be {_SHAPE}, got shape {images.shape}; reshape them; tables, "
            "series and sound go by Python, to macer.train or macer.certify with value_range=None"
        )
    images = images if images.ndim == 4 else images[:, None]
    if images.shape[3] in (1, 3, 4) and images.shape[1] not in (1, 3, 4):
        raise Mistake(
            f"images must have their channels first, got shape {images.shape}; "
            "images.transpose(0, 3, 1, 2) of an array or .permute(0, 3, 1, 2) of a tensor puts "
            "them there"
        )
    if images.dtype.kind == "f":
        return _levels(images)
    if images.dtype != np.uint8 and not 0 <= images.min() <= images.max() <= 255:
        value = images.min() if images.min() < 0 else images.max()
        raise Mistake(f"images of whole numbers must be 0 … 255, got {value}")
    return np.require(images, np.uint8, ["C", "W", "O"])


def _inputs(inputs: np.ndarray, value_range: ValueRange) -> np.ndarray:
    """Floats of any shape (inputs, …), as float32."""
    if inputs.dtype.kind != "f":
        raise Mistake(
            f"inputs with the value_range {value_range} must be floats, got {inputs.dtype}; "
            "convert them, or leave value_range out for 8-bit images"
        )
    if inputs.ndim < 2 or not inputs.size:
        raise Mistake(
            "inputs must have the shape (inputs, …) with one value or more for each, "
            f"got {inputs.shape}"
        )
    with np.errstate(over="ignore"):  # infinity is refused
        values = np.require(inputs, np.float32, ["C", "W", "O"])
    check_values(float(values.min()), float(values.max()), value_range)
    return values


def _levels(images: np.ndarray) -> np.ndarray:
    """The k of images k/255."""
    pixels = np.empty(images.shape, np.uint8)
    slack = max(_SLACK, 64 * float(np.finfo(images.dtype).eps))  # half a step of the type below 1
    for start in range(0, len(images), _BLOCK):
        block = images[start : start + _BLOCK].astype(np.float64)
        if not (block.min() >= 0 and block.max() <= 1):  # true for NaN too
            raise _out_of_range(block)
        levels = np.rint(block * 255)
        off = np.abs(block * 255 - levels) > slack
        if off.any():
            raise Mistake(
                "images of floats must be multiples of 1/255, as 8-bit images are, got "
                f'{block[off][0]:g}; (images * 255).round().astype("uint8") rounds them'
            )
        pixels[start : start + _BLOCK] = levels
    return pixels


def _out_of_range(block: np.ndarray) -> Mistake:
    value = block[~((block >= 0) & (block <= 1))][0]
    remedy = (
        "give them as they were before they were normalised: TrainRecipe(normalise='data') does "
    )
    remedy += "it in the model"
    if not np.isfinite(block).all():
        value, remedy = block[~np.isfinite(block)][0], "correct the data"
    elif block.min() >= 0 and block.max() <= 255 and (block == np.rint(block)).all():
        remedy = 'images.astype("uint8") takes them as 8-bit images'
    return Mistake(f"images of floats must be in [0, 1], got {value:g}; {remedy}")


def _labels(labels: np.ndarray, images: Images) -> np.ndarray:
    """One whole number per image, from 0 on."""
    if labels.ndim != 1:
        remedy = "reshape(-1)" if labels.size == len(images) else "argmax(1)"
        raise Mistake(
            f"labels must be one number per image, got shape {labels.shape}; labels.{remedy} may "
            "be what you mean"
        )
    if labels.dtype.kind in "US":
        raise Mistake(
            f"labels must be whole numbers, got {shown(str(labels[0]))}; "
            "classes, labels = np.unique(labels, return_inverse=True) numbers them"
        )
    if labels.dtype.kind not in "iuf":
        raise Mistake(f"labels must be whole numbers, got {labels.dtype}")
    if len(labels) != len(images):
        raise Mistake(f"labels must be one per image, got {len(labels)} for {len(images)} images")
    whole = np.isfinite(labels) & (labels == np.rint(labels))
    if not whole.all():
        raise Mistake(f"labels must be whole numbers, got {labels[~whole][0]:g}")
    if labels.min() < 0:
        raise Mistake(f"labels must be at least 0, got {labels.min():g}; they count from 0")
    _check_below("labels", labels, 2**31, "a number of classes")
    return np.require(labels, np.int64, ["C", "W", "O"])


def _check_below(name: str, labels: np.ndarray, count: int, what: str) -> None:
    if labels.max() >= count:
        raise Mistake(
            f"{name} must be below {count:,}, {what}, got {labels.max():.0f} at image "
            f"{int(labels.argmax())}"
        )


def _numbers(labels: np.ndarray) -> tuple[str, ...]:
    """The names 0, 1, … if every label up to the largest occurs; else they may count from 1."""
    present = np.unique(labels)
    missing = np.flatnonzero(present != np.arange(len(present)))
    if len(missing):
        raise Mistake(
            f"classes must be given if a label has no image, got no label {missing[0]} but a label "
            f"{present[-1]}; labels count from 0"
        )
    return tuple(map(str, range(max(2, len(present)))))


def _names(classes: Any) -> tuple[str, ...]:
    if not isinstance(classes, list | tuple) or not all(isinstance(name, str) for name in classes):
        raise wrong(
            "classes", "a list of names, one per label", classes,
            "tuple(map(str, range(10))) names ten by their numbers",
        )  # fmt: skip
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise wrong("classes", "two or more different names", list(classes))
    return tuple(str(name) for name in classes)
