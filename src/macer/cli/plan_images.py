"""The images that a plan is for: of a data set, of photographs, or of a shape alone."""

import re
from typing import TYPE_CHECKING, NamedTuple

from macer.cli.parameters import Data
from macer.recipes import TrainRecipe
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from macer.data.sets import Split

Shape = tuple[int, int, int]


class PlannedImages(NamedTuple):
    """What is known of the images that a plan is for."""

    shape: Shape
    classes: int
    tested: int | None = None  # test images of a data set that was read


def sized_data_set(dataset: str | None, size: str | None, recipe: TrainRecipe | None) -> str | None:
    """The data set's name with its size, such as folder@64; None if neither is given."""
    from macer.data.sets import sized

    if size is not None and dataset is None:
        if recipe is None:
            raise Mistake(f"dataset must be given with size, got {size}; add --dataset folder")
        dataset = recipe.dataset
    return None if dataset is None else sized(dataset, size)


def planned_images(
    name: str, dataset: str | None, data: Data, shape: str | None, classes: int | None
) -> PlannedImages:
    """The shape and the number of classes: given, or those of a data set."""
    from macer.data.sets import classes_of
    from macer.system.user_code import names_a_function

    if shape is not None and classes is not None:
        check_left_out("a shape and classes", dataset=dataset)
        return PlannedImages(_shape(shape), classes)
    if dataset is None:
        raise Mistake(
            f"dataset must be given to plan for {name}; add --dataset NAME, or --shape and "
            "--classes"
        )
    if shape is not None and not names_a_function(dataset):
        return PlannedImages(_shape(shape), len(classes_of(dataset, data)))
    known = _of_data_set(dataset, data)
    return PlannedImages(
        _shape(shape) if shape else known.shape, classes or known.classes, known.tested
    )


def _of_data_set(name: str, data: Data) -> PlannedImages:
    """A data set's images and its number of classes; photographs and functions are read."""
    from macer.data.arrays import class_names
    from macer.data.sets import DATASETS, classes_of
    from macer.system.user_code import names_a_function

    known = () if names_a_function(name) else classes_of(name, data)
    if name in DATASETS and (shape := DATASETS[name].shape):
        return PlannedImages(shape, len(known))
    split = read_leniently(name, "test", data)
    channels, height, width = split.images.shape[1:]
    classes = known or class_names(None, split)
    return PlannedImages((channels, height, width), len(classes), len(split.images))


def read_leniently(name: str, part: str, data: Data) -> "Split":
    """A split as far as it can be read; what is damaged or found twice does not matter here."""
    from macer.data.sets import Rules, load

    return load(name, part, data, rules=Rules(skip_damaged=True, duplicates="ignore"))


def _shape(text: str) -> Shape:
    sizes = re.fullmatch(r"([1-9]\d{0,5})[x×,]([1-9]\d{0,5})[x×,]([1-9]\d{0,5})", text, re.ASCII)
    if sizes is None:
        raise Mistake(f"shape must be channels, height and width, such as 3x32x32, got {text}")
    channels, height, width = map(int, sizes.groups())
    return channels, height, width


def check_left_out(name: str, **settings: object) -> None:
    """Refuse settings that a model, or a shape and classes, have already."""
    for setting, value in settings.items():
        if value is not None:
            raise Mistake(f"{setting} must be left out for {name}, which has its own, got {value}")
