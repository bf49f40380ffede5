"""The table of data sets, and how a split is loaded by its data set's name."""

import os
import re
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from macer.data.data_set import DataSet, Layout
from macer.data.file_check import undamaged
from macer.data.formats import read_cifar10_binary, read_cifar10_python, read_idx
from macer.data.image_files import SIDE, read_image_files
from macer.data.photograph import Size
from macer.data.photographs import Rules, read_photographs
from macer.data.split import ARRAYS, SPLITS, Split
from macer.data.svhn import read_svhn
from macer.system.errors import Mistake
from macer.system.typed import require_type
from macer.system.user_code import names_a_function, nearest

__all__ = ["DATASETS", "Location", "Rules", "Split", "classes_of", "data_folder", "load", "located"]

FOLDER = "folder"
_LARGEST_SIDE = 1024

_DIGITS = tuple("0123456789")
_IDX_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# An absolute path: joined to any data folder, it stays as it is.
_SAMPLE = str(resources.files("macer") / "assets" / "mnist-sample")

# To add a data set:
# - an entry here, whose key is its name;
# - the reader of its files in formats.py, unless one of the readers above fits;
# - its official addresses and checksums in SOURCES in downloads.py, if it may be downloaded.
DATASETS: dict[str, DataSet] = {
    "mnist-sample": DataSet(
        name="mnist-sample",
        shape=(1, 28, 28),
        classes=_DIGITS,
        mean=(0.1307,),
        std=(0.3081,),
        layouts=(Layout((_SAMPLE,), _IDX_TRAIN, _IDX_TEST, read_idx, gzipped=True),),
        source="in this package: MNIST's first 10,000 training and first 2,000 test images",
        licence="CC BY-SA 3.0, Yann LeCun, Corinna Cortes, Christopher Burges",
    ),
    "mnist": DataSet(
        name="mnist",
        shape=(1, 28, 28),
        classes=_DIGITS,
        mean=(0.1307,),
        std=(0.3081,),
        layouts=(
            Layout(
                ("MNIST/raw", "MNIST", "mnist", "mnist/raw"),
                _IDX_TRAIN,
                _IDX_TEST,
                read_idx,
                gzipped=True,
            ),
        ),
        source="http://yann.lecun.com/exdb/mnist/, 60,000 and 10,000 images",
        licence="CC BY-SA 3.0, Yann LeCun, Corinna Cortes, Christopher Burges",
    ),
    "fashion-mnist": DataSet(
        name="fashion-mnist",
        shape=(1, 28, 28),
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        mean=(0.2860,),
        std=(0.3530,),
        layouts=(
            Layout(
                ("FashionMNIST/raw", "FashionMNIST", "fashion-mnist", "fashion-mnist/raw"),
                _IDX_TRAIN,
                _IDX_TEST,
                read_idx,
                gzipped=True,
            ),
        ),
        source="https://github.com/zalandoresearch/fashion-mnist, 60,000 and 10,000 images",
        licence="MIT, Zalando SE",
    ),
    "cifar10": DataSet(
        name="cifar10",
        shape=(3, 32, 32),
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        layouts=(
            Layout(
                ("cifar-10-batches-bin",),
                tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
                ("test_batch.bin",),
                read_cifar10_binary,
            ),
            Layout(
                ("cifar-10-batches-py",),
                tuple(f"data_batch_{i}" for i in range(1, 6)),
                ("test_batch",),
                read_cifar10_python,
            ),
        ),
        source="https://www.cs.toronto.edu/~kriz/cifar.html, 50,000 and 10,000 images",
        licence="none stated; cite Krizhevsky, Learning multiple layers of features, 2009",
    ),
    "svhn": DataSet(
        name="svhn",
        shape=(3, 32, 32),
        classes=_DIGITS,
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
        layouts=(
            Layout(("svhn", "SVHN", "."), ("train_32x32.mat",), ("test_32x32.mat",), read_svhn),
        ),
        source="http://ufldl.stanford.edu/housenumbers/, cropped, 73,257 and 26,032 images",
        licence="non-commercial use only; cite Netzer et al., Reading digits, 2011",
    ),
    "imagenet": DataSet(
        name="imagenet",
        shape=(3, SIDE, SIDE),
        classes=(),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        layouts=(
            Layout(
                ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "."),
                ("train",),
                ("val",),
                read_image_files,
            ),
        ),
        source="https://www.image-net.org, ILSVRC 2012: train/CLASS/*.JPEG, val/CLASS/*.JPEG",
        licence="non-commercial research; cite Russakovsky et al., ImageNet challenge, 2015",
        any_size=True,
    ),
    "folder": DataSet(
        name="folder",
        shape=None,
        classes=(),
        mean=None,
        std=None,
        layouts=(Layout((".",), ("train",), ("test",), read_photographs, test_instead=("val",)),),
        source="your own images: train/CLASS/*, and test/CLASS/* or val/CLASS/*",
        licence="your own",
    ),
}


def _data_set(name: str, rules: Rules = Rules()) -> DataSet:  # noqa: B008  immutable
    plain = _plain(name)
    if plain != FOLDER:
        data_set = DATASETS[sized(name, None)]
        if not (rules.skip_damaged and data_set.any_size):
            return data_set
        [layout] = data_set.layouts
        reader = layout.reader
        whole = layout._replace(reader=lambda paths: undamaged(reader(paths)))
        return replace(data_set, layouts=(whole,))
    [layout] = DATASETS[plain].layouts
    reader = partial(read_photographs, size=size_of(name), rules=rules)
    return replace(DATASETS[plain], name=name, layouts=(layout._replace(reader=reader),))


def _plain(name: str) -> str:
    """The name of a data set without a size; an unknown one is refused."""
    plain = name.partition("@")[0] if isinstance(name, str) else ""
    if plain == ARRAYS:
        raise Mistake(
            "dataset must be one that a command can read, got arrays, which Python was given; "
            "go on in Python, or have a function return them, as package.module:function"
        )
    if plain not in DATASETS:
        raise Mistake(
            f"unknown data set {name!r}{nearest(str(name), DATASETS)}; choose from "
            f"{', '.join(sorted(DATASETS))}, "
            "or name a function of your own as package.module:function"
        )
    return plain


def sized(name: str, size: str | None) -> str:
    """The name of a folder of photographs at a size, such as folder@64; other names stay.

    Args:
        size: N, or HEIGHTxWIDTH; None leaves the name as it is.
    """
    plain = name if names_a_function(name) else _plain(name)
    given = name.removeprefix(plain).removeprefix("@")
    if size is None and plain == name:
        return name
    if plain != FOLDER:
        raise Mistake(
            f"size must be left out with {plain}, whose images have a size of their own, "
            f"got {size or given}"
        )
    height, width = _size(size if size is not None else given)
    return f"{FOLDER}@{height}" if height == width else f"{FOLDER}@{height}x{width}"


def size_of(name: str) -> Size | None:
    """The size, (height, width), that a folder's name has; None if it has none."""
    plain, at, given = name.partition("@")
    return _size(given) if at and plain == FOLDER else None


def _size(text: str) -> Size:
    match = re.fullmatch(r"([0-9]{1,4})(?:x([0-9]{1,4}))?", text)
    height, width = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not (1 <= height <= _LARGEST_SIDE and 1 <= width <= _LARGEST_SIDE):
        raise Mistake(
            f"size must be N or HEIGHTxWIDTH, each from 1 to {_LARGEST_SIDE}, got {text!r}"
        )
    return height, width


def data_folder(flag: Path | str | None) -> Path:
    """The folder of the flag, else of $MACER_DATA, else ./data."""
    require_type("folder", flag, str | os.PathLike | None, "the path of the data sets")
    return Path(flag if flag is not None else os.environ.get("MACER_DATA") or "data")


def load(
    name: str,
    split: str,
    folder: Path | str | None = None,
    *,
    rules: Rules = Rules(),  # noqa: B008  immutable
    home: str | None = None,
) -> Split:
    """Read one split, 'train' or 'test', of the data set with this name.

    Args:
        name: a key of DATASETS; folder@64 or folder@48x64 for photographs fitted to a size; or
            package.module:function, see `macer.data.own_set`.
        rules: for a folder of photographs.
        home: the folder of the function's module; by default the current one is searched first.
    """
    if isinstance(name, str) and names_a_function(name):
        from macer.data.own_set import read_own

        return read_own(name, split, home)
    return _data_set(name, rules).read(data_folder(folder), split)


def classes_of(name: str, folder: Path | str | None = None) -> tuple[str, ...]:
    """The names of the classes in the order of their labels."""
    return _data_set(name).class_names(data_folder(folder))


class Location(NamedTuple):
    """A data set and the folder of its training files, or None if they are missing."""

    name: str
    path: Path | None
    source: str
    licence: str


def located(folder: Path | None = None) -> list[Location]:
    """For each data set the folder that has both splits, its source and its licence."""
    return [
        Location(name, _place(data_set, data_folder(folder)), data_set.source, data_set.licence)
        for name, data_set in DATASETS.items()
    ]


def _place(data_set: DataSet, folder: Path) -> Path | None:
    try:
        (_, train), _ = (data_set.files(folder, split) for split in SPLITS)
    except Mistake:
        return None
    return train[0].parent
