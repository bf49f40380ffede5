"""Recipes: every field's default, type, range, help text and flag; named ones; schedules."""

from macer.recipes.fields import MOST_VOTES, CertifyRecipe, Natural, TrainRecipe, Whole, check_seed
from macer.recipes.loss import Loss
from macer.recipes.named import named_recipe, read_recipe, recipe_names, run_name

__all__ = [
    "MOST_VOTES",
    "CertifyRecipe",
    "Loss",
    "Natural",
    "TrainRecipe",
    "Whole",
    "check_seed",
    "named_recipe",
    "read_recipe",
    "recipe_names",
    "run_name",
]
