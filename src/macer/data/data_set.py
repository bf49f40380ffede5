"""A data set: where its files lie, and how a split is read from them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from macer.data.downloads import SOURCES
from macer.data.image_files import ImageFiles
from macer.data.image_folder import image_classes
from macer.data.split import SPLITS, Images, Split
from macer.system.errors import Mistake


class Layout(NamedTuple):
    """Where the files of a data set lie in the data folder, and the function that reads them."""

    folders: tuple[str, ...]  # in order of preference
    train: tuple[str, ...]  # names of files
    test: tuple[str, ...]
    reader: Callable[[Sequence[Path]], Split]
    gzipped: bool = False  # the names may end in .gz
    test_instead: tuple[str, ...] = ()  # where there is no test

    def files(self, folder: Path, split: str) -> list[Path] | None:
        """The paths of a split's files; None if no folder has files of the data set."""
        place = self.place(folder)
        return self._paths(place, split) if place else None

    def place(self, folder: Path) -> Path | None:
        """The first folder that has one of the splits; both splits are read from there."""
        for place in self._places(folder):
            if any(self._paths(place, split)[0].exists() for split in SPLITS):
                return place
        return None

    def _paths(self, place: Path, split: str) -> list[Path]:
        names = self.train if split == "train" else self.test
        if split == "test" and self.test_instead and not (place / names[0]).exists():
            instead = all((place / name).exists() for name in self.test_instead)
            names = self.test_instead if instead else names
        return [self._plain_or_gzipped(place / name) for name in names]

    def names(self, place: Path) -> tuple[str, str]:
        """The names of the two splits' first files or folders."""
        train, test = (self._paths(place, split)[0].name for split in SPLITS)
        return train, test

    def _plain_or_gzipped(self, path: Path) -> Path:
        gzipped = path.with_name(f"{path.name}.gz")
        return gzipped if self.gzipped and gzipped.exists() and not path.exists() else path

    def _places(self, folder: Path) -> list[Path]:
        """The folders to search; the data folder may itself be the data set's own folder."""
        return [place for name in self.folders for place in _overlaid(folder, Path(name))]


def _overlaid(folder: Path, name: Path) -> Iterator[Path]:
    """The name under the folder, then the name laid over a part that the folder ends with.

    data, MNIST/raw → data/MNIST/raw
    data/MNIST, MNIST/raw → data/MNIST/MNIST/raw, data/MNIST/raw
    """
    yield folder / name
    for shared in range(1, len(name.parts) + 1):
        if folder.absolute().parts[-shared:] == name.parts[:shared]:
            yield folder.joinpath(*name.parts[shared:])


@dataclass(frozen=True)
class DataSet:
    """A data set; its shape, classes and statistics are empty if its files decide them.

    Args:
        shape: (channels, height, width)
        mean: the published mean of each channel over the training images in [0, 1]
        std: the published standard deviation likewise
        any_size: whether the files hold images of any size, which become images of `shape`
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
        """The layout that the folder has, and the paths of the split's files."""
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
        read = layout.reader(paths)
        images, labels = read
        self._check(paths, images, labels)
        if not isinstance(images, ImageFiles):
            images = np.require(images, np.uint8, ["C", "W", "O"])
        labels = np.require(labels, np.int64, ["C", "W", "O"])
        classes = read.classes or self.class_names(folder)
        return replace(read, images=images, labels=labels, dataset=self.name, classes=classes)

    def class_names(self, folder: Path) -> tuple[str, ...]:
        """The names of the classes in the order of their labels."""
        if self.classes:
            return self.classes
        [layout] = self.layouts
        place = layout.place(folder) or folder
        return image_classes(place, layout.names(place))

    def _check(self, paths: Sequence[Path], images: Images, labels: np.ndarray) -> None:
        place = paths[-1]
        if len(images) != len(labels) or len(images) == 0:
            raise Mistake(
                f"{place} must hold one or more images and one label per image, "
                f"got {len(labels)} labels for {len(images)} images"
            )
        if self.shape is not None and images.shape[1:] != self.shape:
            raise Mistake(f"{paths[0]} must hold {self.shape} images, got {images.shape[1:]}")
        if self.classes and not 0 <= labels.min() <= labels.max() < len(self.classes):
            wrong = labels[(labels < 0) | (labels >= len(self.classes))][0]
            raise Mistake(f"{place} must hold labels below {len(self.classes)}, got {wrong}")

    def _missing(self, folder: Path, path: Path) -> Mistake:
        others = [path.with_name(name) for name in ("val", "valid", "validation")]
        if path.name == "test" and (found := [other for other in others if other.is_dir()]):
            return Mistake(f"no folder {path}; rename {found[0]} to it, if it has the test images")
        remedy = "put the files there"
        if self.name in SOURCES:
            remedy = f"run `macer data --download {self.name} --data {folder}`"
        elif path.name in SPLITS:
            remedy = (
                f"put images into {folder}/train/CLASS/, and those to judge by into "
                f"{folder}/test/CLASS/"
            )
        return Mistake(
            f"no files of {self.name!r} in {folder}: expected {path}; "
            f"{remedy}, or set MACER_DATA to the folder that has them"
        )
