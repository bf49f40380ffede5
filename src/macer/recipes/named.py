"""Recipes by name: TOML files that come with the package, and those of a user."""

import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path
from typing import Any

from macer.recipes.fields import FIELDS, MACER, TrainRecipe
from macer.recipes.loss import as_loss
from macer.recipes.older import FLAT, SETTINGS, from_flat
from macer.system.errors import Mistake
from macer.system.files import read_text
from macer.system.user_code import check_admitted, nearest

RECIPES = files("macer") / "assets" / "recipes"
LARGEST_RECIPE = 1 << 14  # bytes; the time that a key of many parts takes grows as their square


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package, such as paper/cifar10-0.25."""
    return list(_shipped_names())


@cache  # a command asks for the names hundreds of times
def _shipped_names() -> tuple[str, ...]:
    return tuple(sorted(_walk(RECIPES)))


def _walk(folder: Traversable, prefix: str = "") -> list[str]:
    names = []
    for entry in folder.iterdir():
        if entry.is_dir():
            names += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            names.append(prefix + entry.name.removesuffix(".toml"))
    return names


def recipe_names_like(start: str) -> list[str]:
    """The recipe of this name, or those whose names begin so; at least one, or a Mistake."""
    names = recipe_names()
    found = [start] if start in names else [name for name in names if name.startswith(start)]
    if not found:
        kinds = sorted({f"{name.partition('/')[0]}/" for name in names if "/" in name})
        raise Mistake(
            f"unknown recipe {start!r}{nearest(start, [*names, *kinds])}; `macer recipes` lists "
            "them"
        )
    return found


def recipe_comment(name: str) -> str:
    """What the first lines of a recipe's file say of it, in one line."""
    lines = takewhile(lambda line: line.startswith("#"), recipe_text(name).splitlines())
    return " ".join(" ".join(line.lstrip("#") for line in lines).split())


def measured_acr(name: str) -> float | None:
    """The ACR that the first lines of a recipe's file report of a training by it."""
    found = re.search(r"\bACR (\d+\.\d+)", recipe_comment(name))
    return float(found[1]) if found else None


def trained_before(name: str) -> list[str]:
    """The recipes whose runs a recipe takes for its teachers, to be trained first."""
    recipe = named_recipe(name)
    teachers = (recipe.pseudo, str(recipe.loss.get("teacher") or ""))
    return [first for first in map(recipe_of_run, teachers) if first]


def recipe_of_run(folder: str) -> str | None:
    """The recipe whose training makes this folder, if nothing else is said."""
    runs = {f"runs/{run_name(name)}": name for name in recipe_names()}
    return runs.get(folder)


def read_recipe(name: str) -> dict[str, Any]:
    """What a named recipe or a TOML file says, unchecked."""
    text = recipe_text(name)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML, of long numbers, of deep arrays
        raise Mistake(f"recipe {name} must be a TOML file: {error}") from error


def named_recipe(name: str, *, code: Collection[str] = ()) -> TrainRecipe:
    """A recipe that comes with the package, or that of a TOML file, unchanged.

    Args:
        code: modules that the file may name for its model, its data set and its loss, besides
            those of macer.
    """
    values = read_recipe(name)
    check_fields(name, values)
    with naming(name):
        loss = as_loss(values.get("loss", MACER))
    for function in (values.get("model"), values.get("dataset"), loss.name):
        check_admitted(str(function), code, source=f"recipe {name}")
    with naming(name):
        return TrainRecipe(**values)


@contextmanager
def naming(recipe: str) -> Iterator[None]:
    """Say of a mistake in a recipe which recipe it is."""
    try:
        yield
    except Mistake as mistake:
        raise Mistake(f"recipe {recipe}: {mistake}") from mistake


def check_fields(name: str, values: Mapping[str, Any]) -> None:
    """Refuse a recipe with unknown fields, or with the settings of its loss outside of [loss]."""
    if misplaced := _misplaced(values):
        raise Mistake(
            f"recipe {name} must have its loss and the loss's settings in a table at its end, got "
            f"{', '.join(misplaced)} at the top; write: {_table(values)}"
        )
    if unknown := [field for field in values if field not in FIELDS]:
        guess = nearest(unknown[0], FIELDS)
        raise Mistake(f"recipe {name} has an unknown field {unknown[0]!r}{guess}")


def _misplaced(values: Mapping[str, Any]) -> list[str]:
    named = ["loss"] if isinstance(values.get("loss"), str) else []
    return named + sorted(FLAT.intersection(values))


def _table(values: Mapping[str, Any]) -> str:
    """The [loss] table that a flat recipe asks for, in one line."""
    loss = values.get("loss", "macer")
    if not isinstance(loss, str):
        return "[loss] name = …, then one line for each setting"
    flat = {name: values[name] for name in sorted(FLAT.intersection(values))}
    table = from_flat(values)["loss"] if loss in SETTINGS else {"name": loss, **flat}
    given = {name: value for name, value in table.items() if name == "name" or name in values}
    lines = (f"{name} = {json.dumps(value)}" for name, value in given.items())
    return " ".join(["[loss]", *lines]) + ", each on its own line"


def run_name(recipe: str) -> str:
    """The folder under runs/ that a training of a named recipe or a TOML file goes to."""
    return recipe.replace("/", "-") if recipe in recipe_names() else Path(recipe).stem


def recipe_text(name: str) -> str:
    """The text of a named recipe or a TOML file."""
    if name in recipe_names():
        return (RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if path.exists() and not path.is_dir():
        return read_text(path, limit=LARGEST_RECIPE)
    if name.endswith(".toml"):
        raise Mistake(f"no recipe at {name}; write it, or name one that `macer recipes` lists")
    raise Mistake(
        f"unknown recipe {name!r}{nearest(name, recipe_names())}; `macer recipes` lists them, "
        "or name a TOML file"
    )
