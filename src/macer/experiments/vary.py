"""Variants of a recipe: one for each combination of values that its fields and settings take."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from macer.losses import completed
from macer.recipes import TrainRecipe
from macer.recipes.fields import FIELDS
from macer.system.errors import Mistake
from macer.system.user_code import nearest

MOST_VARIANTS = 1000  # more are a typing error: each is a training


def read_values(asked: Sequence[str]) -> dict[str, list[str]]:
    """The values of each field or setting, from NAME=VALUE,VALUE,…"""
    values: dict[str, list[str]] = {}
    for text in asked:
        name, _, listed = text.partition("=")
        name, found = name.strip().replace("-", "_"), [v.strip() for v in listed.split(",")]
        if not (name.isidentifier() and all(found)):
            raise Mistake(f"vary must be NAME=VALUE,VALUE,… such as lam=1,2,4, got {text!r}")
        if name in values:
            raise Mistake(f"vary must name each field once, got {name} twice")
        if len(set(found)) < len(found):
            raise Mistake(f"vary must give different values to {name}, got {listed}")
        values[name] = found
    return values


def variants(
    recipes: Mapping[str, TrainRecipe], values: Mapping[str, Sequence[str]]
) -> dict[str, TrainRecipe]:
    """Each recipe with each combination of values; the names of its runs say which.

    Args:
        values: as they were typed, by the name of a field or of a setting of the loss.
    """
    combinations = list(itertools.product(*values.values()))
    if len(combinations) * len(recipes) > MOST_VARIANTS:
        raise Mistake(
            f"vary must ask for at most {MOST_VARIANTS} trainings, got "
            f"{len(combinations) * len(recipes)}; give fewer values"
        )
    return {
        "-".join([name, *map("-".join, zip(values, chosen, strict=True))]): _changed(
            recipe, dict(zip(values, chosen, strict=True))
        )
        for name, recipe in recipes.items()
        for chosen in combinations
    }


def _changed(recipe: TrainRecipe, typed: Mapping[str, str]) -> TrainRecipe:
    known = {*FIELDS, *completed(recipe).loss} - {"loss", "seed"}
    for name in typed:
        if name == "seed":
            raise Mistake("vary must not name the seed; --seeds trains every variant with several")
        if name not in known:
            raise Mistake(
                f"vary must name fields of the recipe or settings of its loss, got {name!r}"
                f"{nearest(name, known)}"
            )
    return completed(recipe.changed(**{name: _value(text) for name, text in typed.items()}))


def _value(text: str) -> Any:
    """A value as a recipe's file would have it; a word needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
