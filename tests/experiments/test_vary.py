"""Variants of recipes: every combination, named by its values."""

import pytest

from macer.experiments.vary import read_values, variants
from macer.losses import load_recipe
from macer.recipes import Loss, TrainRecipe
from macer.system.errors import Mistake


def varied(*asked, recipe=None):
    return variants({"base": recipe or load_recipe("demo")}, read_values(asked))


# law


def test_without_values_the_recipes_are_themselves():
    assert varied() == {"base": load_recipe("demo")}


def test_every_combination_is_one_variant_named_by_its_values():
    found = varied("lam=1,2.5", "k=2,4")
    assert list(found) == [
        "base-lam-1-k-2",
        "base-lam-1-k-4",
        "base-lam-2.5-k-2",
        "base-lam-2.5-k-4",
    ]
    assert [(r.loss["lam"], r.k) for r in found.values()] == [(1, 2), (1, 4), (2.5, 2), (2.5, 4)]


def test_a_variant_has_everything_else_of_its_recipe():
    [variant] = varied("sigma=0.75").values()
    base = load_recipe("demo")
    assert variant == base.changed(sigma=0.75)


def test_words_booleans_and_hyphens_are_read_as_a_recipes_file_would():
    [variant] = varied("nesterov=true", "lr-schedule=cosine").values()
    assert variant.nesterov is True and variant.lr_schedule == "cosine"


def test_settings_that_the_recipe_leaves_to_its_loss_can_vary():
    recipe = TrainRecipe(loss=Loss("consistency"))
    assert [r.loss["eta"] for r in varied("eta=0.1,0.2", recipe=recipe).values()] == [0.1, 0.2]


# refusal


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["lam"], r"vary must be NAME=VALUE,VALUE,… such as lam=1,2,4, got 'lam'"),
        (["lam="], r"vary must be NAME=VALUE,VALUE,… such as lam=1,2,4, got 'lam='"),
        (["lam=1,,2"], "vary must be NAME=VALUE"),
        (["=1"], "vary must be NAME=VALUE"),
        (["lam=1", "lam=2"], "vary must name each field once, got lam twice"),
        (["lam=1,1"], "vary must give different values to lam, got 1,1"),
        (
            ["gama=1"],
            "vary must name fields of the recipe or settings of its loss, got 'gama', did",
        ),
        (["eta=1"], "vary must name fields of the recipe or settings of its loss, got 'eta'"),
        (["seed=1,2"], "vary must not name the seed; --seeds trains every variant with several"),
        (["sigma=much"], "sigma must be a number"),
        (["lam=-1"], "lam must be at least 0"),
        ([f"epochs={','.join(map(str, range(1, 1002)))}"], "vary must ask for at most 1000"),
    ],
)
def test_a_mistake_is_refused_in_one_line(asked, message):
    with pytest.raises(Mistake, match=f"^{message}") as caught:
        varied(*asked)
    assert "\n" not in str(caught.value)
