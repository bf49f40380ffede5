"""The paper's tables and figures: what was published, and the recipe and run of every row."""

import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from macer.data.selection import Selection
from macer.losses import completed, load_recipe
from macer.models.build import check_model
from macer.recipes import CertifyRecipe, Loss, TrainRecipe, run_name
from macer.recipes.lengths import shortened
from macer.system.errors import Mistake
from macer.system.user_code import nearest

PUBLISHED = files("macer") / "assets" / "paper"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model of the paper: its published figures, and how it is trained here."""

    name: str
    recipe: str  # a name that `macer recipes` lists
    changes: Mapping[str, Any] = field(default_factory=dict)  # to fields of the recipe
    table: str  # the title of the table it stands in
    accuracies: tuple[float, ...] = ()  # at the table's radii
    acr: float
    epoch_seconds: float | None = None
    epochs: int | None = None
    hours: float | None = None

    def train_recipe(self) -> TrainRecipe:
        """Everything that decides the weights."""
        return _recipe(self.recipe).changed(**self.changes)

    def run(self) -> str:
        """The name of its run's folder; rows of the same model share a run."""
        usual = _recipe(self.recipe).flat()
        changed = [
            f"{name}-{value:g}" for name, value in self.changes.items() if value != usual.get(name)
        ]
        return "-".join([_run_name(self.recipe), *changed])


# A row asks for its recipe again and again, and each time its file would be looked for and read.
_recipe, _run_name = cache(load_recipe), cache(run_name)


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or a figure of the paper."""

    name: str
    title: str
    rows: tuple[Row, ...]
    shows: Literal["scores", "time", "settings"] = "scores"
    radii: tuple[float, ...] = ()
    panels: Literal["sigma", "table", "name"] | None = None  # what a figure groups rows by
    soft_betas: tuple[float, ...] = ()  # for a figure of hard and soft certificates


def item_names() -> list[str]:
    """The names of all tables and figures, in the paper's order."""
    names = [file.name for file in PUBLISHED.iterdir()]
    return sorted(
        (name.removesuffix(".toml") for name in names if name.endswith(".toml")),
        key=lambda name: (name.startswith("figure"), int(name.rpartition("-")[2])),
    )


def read_item(name: str) -> Item:
    """A table or figure by its name, such as table-1."""
    if name not in item_names():
        raise Mistake(
            f"unknown table or figure {name!r}{nearest(name, item_names())}; `macer paper` lists "
            "them"
        )
    content = tomllib.loads((PUBLISHED / f"{name}.toml").read_text("utf-8"))
    sources = [read_item(table) for table in content.pop("tables", ())]
    sigma = content.pop("sigma", None)
    own = [_row(row, content["title"]) for row in content.pop("rows", ())]
    others = [row for source in sources for row in source.rows]
    rows = [row for row in own + others if sigma in (None, row.train_recipe().sigma)]
    radii = content.pop("radii", sources[0].radii if sources else ())
    betas = content.pop("soft_betas", ())
    return Item(name=name, rows=tuple(rows), radii=tuple(radii), soft_betas=tuple(betas), **content)


def _row(fields: Mapping[str, Any], table: str) -> Row:
    accuracies = tuple(float(accuracy) for accuracy in fields.get("accuracies", ()))
    return Row(**{**fields, "table": table, "accuracies": accuracies})


def only(item: Item, text: str | None) -> Item:
    """The item with only those rows whose run has the text in its name."""
    if text is None:
        return item
    rows = tuple(row for row in item.rows if text in row.run())
    if not rows:
        runs = ", ".join(dict.fromkeys(row.run() for row in item.rows))
        raise Mistake(
            f"only must be a part of the name of one of {item.name}'s runs, got {text!r}; they are "
            f"{runs}"
        )
    return replace(item, rows=rows)


ImagesOf = Callable[[str], Selection]  # by data set


def papers_images(dataset: str) -> Selection:
    """The paper's 500 images: 500…999 in the authors' code, which has none for ImageNet."""
    return Selection(0, None, 100) if dataset == "imagenet" else Selection(500, 1000, 1)


def asked_recipe(row: Row, share: float, model: str | None = None) -> TrainRecipe:
    """The recipe of a row for a share of its epochs, with the paper's network or another one."""
    recipe = row.train_recipe()
    if model is not None:
        check_model(model)
        recipe = recipe.changed(model=model)
    return shortened(recipe, share)


def _is_gaussian(recipe: TrainRecipe) -> bool:
    """Whether this is Gaussian training: MACER with k = 1 and λ = 0, if not by its own name."""
    loss = recipe.loss
    return loss.name == "gaussian" or (
        loss.name == "macer" and recipe.k == 1 and loss.get("lam") == 0
    )


def differing(recipe: TrainRecipe, other: TrainRecipe) -> dict[str, tuple[Any, Any]]:
    """The fields in which two recipes differ, each with both values.

    The settings of different losses are not compared. They are not completed either, because a
    recipe that was read from a run may name code, which must not be imported. Gaussian training is
    one loss, by whichever name a recipe has it.
    """
    if _is_gaussian(recipe) and _is_gaussian(other):
        other = replace(other, loss=recipe.loss)
    if recipe.loss.name == other.loss.name:
        recipe, other = completed(recipe), completed(other)
    else:
        recipe, other = (replace(each, loss=Loss(each.loss.name)) for each in (recipe, other))
    own, others = recipe.flat(), other.flat()
    return {name: (own[name], others[name]) for name in own if own[name] != others[name]}


def commands(
    row: Row,
    recipe: TrainRecipe,
    folder: str,
    images: Selection,
    settings: CertifyRecipe,
    *,
    soft_betas: tuple[float, ...] = (),
    data: str | None = None,
) -> list[str]:
    """The commands that train and certify this row by a recipe, which may be shortened."""
    out, source = shlex.quote(folder), flags({"data": data}, {"data": None})
    training = flags(recipe.flat(), _recipe(row.recipe).flat())
    certifying = flags(asdict(images), asdict(Selection()))
    certifying += flags(asdict(settings), asdict(CertifyRecipe()))
    certifying += flags({"soft_betas": soft_betas}, {"soft_betas": ()})
    return [
        " ".join(["macer train", row.recipe, *training, *source, f"--out {out}"]),
        " ".join([f"macer certify {out}", *certifying, *source]),
    ]


def flags(given: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """The flags of a command for values that differ from the usual ones."""
    return [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, values in given.items()
        if values != usual[name]
        for value in (values if isinstance(values, tuple) else (values,))
    ]
