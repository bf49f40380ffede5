"""The table of data sets, and how a split is loaded by its data set's name."""

import os
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from macer.data.data_set import DataSet, Layout
from macer.data.formats import read_cifar10_binary, read_cifar10_python, read_idx
from macer.data.image_files import SIDE, read_image_files
from macer.data.image_folder import read_image_folder
from macer.data.split import SPLITS, Split
from macer.data.svhn import read_svhn
from macer.errors import Mistake
from macer.system.typed import require_type
from macer.system.user_code import nearest

__all__ = ["DATASETS", "Location", "Split", "classes_of", "data_folder", "load", "located"]

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
        layouts=(Layout((".",), ("train",), ("test",), read_image_folder),),
        source="your own images: train/CLASS/*.png or *.jpg, and test/CLASS/* likewise",
        licence="your own",
    ),
}


def _data_set(name: str) -> DataSet:
    if not isinstance(name, str) or name not in DATASETS:
        raise Mistake(
            f"unknown data set {name!r}{nearest(str(name), DATASETS)}; choose from "
            f"{', '.join(sorted(DATASETS))}"
        )
    return DATASETS[name]


def data_folder(flag: Path | str | None) -> Path:
    """The folder of the flag, else of $MACER_DATA, else ./data."""
    require_type("folder", flag, str | os.PathLike | None, "the path of the data sets")
    return Path(flag if flag is not None else os.environ.get("MACER_DATA") or "data")


def load(name: str, split: str, folder: Path | str | None = None) -> Split:
    """Read one split, 'train' or 'test', of the data set with this name."""
    return _data_set(name).read(data_folder(folder), split)


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
