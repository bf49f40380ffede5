"""List images in folders named after classes: train/CLASS/*, and test/CLASS/* or val/CLASS/*."""

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from macer.data.photograph import KINDS
from macer.data.split import SPLITS
from macer.system.errors import Mistake

MAX_CLASSES = 1 << 16


def image_classes(folder: Path, splits: tuple[str, str] = SPLITS) -> tuple[str, ...]:
    """The sorted class names: the names of the folders in both splits, which must agree."""
    train, test = splits
    names = {split: classes for split in splits if (classes := _class_folders(folder / split))}
    if not names:
        raise Mistake(f"no images in {folder}: expected {folder / train}/CLASS/*.png or *.jpg")
    if len(names) == 2 and (unmatched := sorted(names[train] ^ names[test])):
        split, other = (train, test) if unmatched[0] in names[train] else (test, train)
        raise Mistake(
            f"classes in {folder / train} and {folder / test} must agree, "
            f"got {unmatched[0]!r} in {split} only; make that folder in {other} too, it may be "
            f"empty, or remove it from {split}"
        )
    return tuple(sorted(set().union(*names.values())))


def _class_folders(folder: Path) -> set[str]:
    names = (
        entry.name
        for entry in _entries(folder)
        if not entry.name.startswith(".") and _is_folder(entry)
    )
    classes = set(islice(names, MAX_CLASSES + 1))
    if len(classes) > MAX_CLASSES:
        raise Mistake(f"{folder} must have at most {MAX_CLASSES:,} folders of classes, got more")
    return classes


def _entries(folder: Path) -> "Iterable[os.DirEntry[str]]":
    """What lies in a folder; nothing if it does not exist."""
    return os.scandir(folder) if folder.is_dir() else ()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def reading_order(folder: Path, images: int) -> NDArray[np.int64]:
    """The order in which a split's images are read: class after class, but mixed for training.

    So the last training images, which may be held out, and the first ones, which may be the only
    ones with labels, come from all classes.
    """
    if folder.name != "train":
        return np.arange(images)
    return np.random.Generator(np.random.Philox(0)).permutation(images)


class Listing(NamedTuple):
    """The files of a split; none of them has been opened."""

    names: list[str]  # of images, relative to the split's folder, in the order of their numbers
    labels: NDArray[np.int64]
    skipped: list[tuple[str, str]]  # names of what is no image, and why
    empty: list[str]  # classes without an image


def listed(folder: Path, classes: Sequence[str]) -> Listing:
    """List a split, folder/CLASS/*; nothing is opened, so that 100,000 files take a second."""
    names: list[str] = []
    labels: list[int] = []
    skipped, empty = _outside_of(folder, classes), []
    for label, name in enumerate(classes):
        images, others = _images_and_others(folder / name)
        names += [f"{name}/{file}" for file in images]
        labels += [label] * len(images)
        skipped += [(f"{name}/{other}", why) for other, why in others]
        if not images:
            empty.append(name)
    order = reading_order(folder, len(names))
    mixed = np.array(labels, np.int64)[order]
    return Listing([names[i] for i in order], mixed, sorted(skipped), empty)


def image_names(folder: Path) -> list[str]:
    """The sorted names of the image files in a folder; none if the folder does not exist."""
    return _images_and_others(folder)[0]


def _images_and_others(folder: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """The sorted names of a folder's image files, and the other names with the reason."""
    images, others = [], []
    for entry in _entries(folder):
        if why := _why_no_image(entry):
            others.append((entry.name, why))
        else:
            images.append(entry.name)
    return sorted(images), others


def _why_no_image(entry: "os.DirEntry[str]") -> str:
    if entry.name.startswith("."):
        return "hidden"
    if _is_folder(entry):
        return "a folder in the folder of a class"
    return "" if entry.name.lower().endswith(KINDS) else "no image by its name"


def _outside_of(folder: Path, classes: Sequence[str]) -> list[tuple[str, str]]:
    """What lies beside the classes' folders."""
    known = set(classes)
    return [
        (entry.name, "in no folder of a class")
        for entry in _entries(folder)
        if entry.name not in known or not _is_folder(entry)
    ]
