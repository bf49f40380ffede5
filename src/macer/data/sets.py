"""The data sets: where their files lie, their published statistics, and what a batch undergoes."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from macer.data.downloads import SOURCES, download
from macer.data.formats import (
    SPLITS,
    Images,
    Layout,
    Split,
    read_cifar10_binary,
    read_cifar10_python,
    read_idx,
)
from macer.data.image_files import SIDE, ImageFiles, read_image_files
from macer.data.image_folder import image_classes, read_image_folder
from macer.data.svhn import read_svhn
from macer.errors import Mistake
from macer.system.typed import require_type

__all__ = [
    "DATASETS",
    "DataSet",
    "Location",
    "Split",
    "channel_statistics",
    "classes_of",
    "data_folder",
    "download",
    "fingerprint",
    "load",
    "located",
    "pixels_sha256",
]


@dataclass(frozen=True)
class DataSet:
    """A data set by name; shape, classes and statistics are empty where the files decide them.

    Args:
        shape: (channels, height, width)
        mean: of each channel over the training images in [0, 1], as published
        std: likewise
        any_size: whether the files have images of any size, which become images of `shape`
    """

    name: str
    shape: tuple[int, int, int] | None
    classes: tuple[str, ...]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    layouts: tuple[Layout, ...]
    source: str
    licence: str
    any_size: bool = False

    def files(self, folder: Path, split: str) -> tuple[Layout, list[Path]]:
        """The layout found in the folder, and the paths of the split's files."""
        for layout in self.layouts:
            paths = layout.files(folder, split)
            if paths is not None:
                if missing := [path for path in paths if not path.exists()]:
                    raise self._missing(folder, missing[0])
                return layout, paths
        layout = self.layouts[0]
        name = (layout.train if split == "train" else layout.test)[0]
        raise self._missing(folder, folder / layout.folders[0] / name)

    def read(self, folder: Path, split: str) -> Split:
        """Read and check one split, 'train' or 'test'."""
        if split not in SPLITS:
            raise Mistake(f"split must be train or test, got {split!r}")
        layout, paths = self.files(folder, split)
        images, labels = layout.reader(paths)
        self._check(paths, images, labels)
        if not isinstance(images, ImageFiles):
            images = np.require(images, np.uint8, ["C", "W", "O"])
        return Split(images, np.require(labels, np.int64, ["C", "W", "O"]), self.name)

    def class_names(self, folder: Path) -> tuple[str, ...]:
        """Names of the classes, by label."""
        if self.classes:
            return self.classes
        [layout] = self.layouts
        place = layout.place(folder) or folder
        return image_classes(place, (layout.train[0], layout.test[0]))

    def _check(self, paths: Sequence[Path], images: Images, labels: np.ndarray) -> None:
        place = paths[-1]
        if len(images) != len(labels) or len(images) == 0:
            raise Mistake(
                f"{place} must hold one label for each of one or more images, "
                f"got {len(labels)} labels for {len(images)} images"
            )
        if self.shape is not None and images.shape[1:] != self.shape:
            raise Mistake(f"{paths[0]} must hold {self.shape} images, got {images.shape[1:]}")
        if self.classes and not 0 <= labels.min() <= labels.max() < len(self.classes):
            wrong = labels[(labels < 0) | (labels >= len(self.classes))][0]
            raise Mistake(f"{place} must hold labels below {len(self.classes)}, got {wrong}")

    def _missing(self, folder: Path, path: Path) -> Mistake:
        remedy = (
            f"run `macer data --download {self.name} --data {folder}`"
            if self.name in SOURCES
            else "put the files there"
        )
        return Mistake(
            f"no files of {self.name!r} in {folder}: expected {path}; "
            f"{remedy}, or set MACER_DATA to the folder that has them"
        )


_DIGITS = tuple("0123456789")
_IDX_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
# An absolute path: joined to any data folder, it stays itself.
_SAMPLE = str(resources.files("macer") / "assets" / "mnist-sample")

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


def _known(name: str) -> DataSet:
    if not isinstance(name, str) or name not in DATASETS:
        raise Mistake(f"unknown data set {name!r}; choose from {', '.join(sorted(DATASETS))}")
    return DATASETS[name]


def data_folder(flag: Path | str | None) -> Path:
    """The folder of the flag, else of $MACER_DATA, else ./data."""
    require_type("folder", flag, str | os.PathLike | None, "the path of the data sets")
    return Path(flag if flag is not None else os.environ.get("MACER_DATA") or "data")


def load(name: str, split: str, folder: Path | str | None = None) -> Split:
    """Read one split, 'train' or 'test', of a data set by name."""
    return _known(name).read(data_folder(folder), split)


def classes_of(name: str, folder: Path | str | None = None) -> tuple[str, ...]:
    """Names of the classes, by label."""
    return _known(name).class_names(data_folder(folder))


class Location(NamedTuple):
    """Where a data set is: the folder of its training files, or None if it is not here."""

    name: str
    path: Path | None
    source: str
    licence: str


def located(folder: Path | None = None) -> list[Location]:
    """For each data set, the folder that has both of its splits, and where it comes from."""
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


def fingerprint(split: Split) -> str:
    """SHA-256 over shape, images and labels; of images in files, over their names and sizes.

    The pixels of such an image are hashed when they are read, by `pixels_sha256`.
    """
    digest = hashlib.sha256(repr(tuple(map(int, split.images.shape))).encode())
    if isinstance(split.images, ImageFiles):
        digest.update(repr(list(split.images.sizes())).encode())
    else:
        digest.update(np.ascontiguousarray(split.images).reshape(-1).data)
    digest.update(np.ascontiguousarray(split.labels, "<i8").data)
    return digest.hexdigest()


def pixels_sha256(split: Split, image: np.ndarray) -> str:
    """SHA-256 of an image's pixels if they are in a file; "" where `fingerprint` covers them."""
    if not isinstance(split.images, ImageFiles):
        return ""
    return hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()


def channel_statistics(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for images in [0, 1]."""
    levels, images = np.arange(256) / 255, np.asarray(split.images)
    counts = [
        np.bincount(images[:, channel].reshape(-1), minlength=256)
        for channel in range(images.shape[1])
    ]
    means = [float(np.average(levels, weights=count)) for count in counts]
    variances = [
        float(np.average((levels - mean) ** 2, weights=count))
        for mean, count in zip(means, counts, strict=True)
    ]
    return tuple(means), tuple(variance**0.5 for variance in variances)
