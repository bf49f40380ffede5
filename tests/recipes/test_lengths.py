"""Recipes for fewer or more epochs: what happens at an epoch moves along."""

from dataclasses import replace

import pytest

from macer.losses import completed
from macer.recipes import Loss, TrainRecipe, named_recipe, recipe_names
from macer.recipes.lengths import of_copies, of_epochs, shortened
from macer.recipes.schedules import learning_rate, trade_off
from macer.system.errors import Mistake

# law


@pytest.mark.parametrize("name", recipe_names())
def test_a_longer_training_has_its_schedules_at_the_same_places(name: str) -> None:
    recipe = completed(named_recipe(name))
    longer = completed(of_epochs(recipe, 3 * recipe.epochs))
    for step in range(50):
        epoch = step / 50 * recipe.epochs
        assert learning_rate(longer, 3 * epoch) == pytest.approx(learning_rate(recipe, epoch))
        assert trade_off(longer, 3 * epoch) == pytest.approx(trade_off(recipe, epoch))
    assert of_epochs(longer, recipe.epochs) == recipe


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_of_one_epoch(name: str) -> None:
    assert shortened(named_recipe(name), 1e-6).epochs == 1


def test_trainings_of_as_many_copies_take_as_many_noisy_images() -> None:
    recipe = named_recipe("paper/cifar10-0.25")
    found = {k: of_copies(recipe.changed(k=k), 320) for k in (1, 2, 4, 8, 16)}
    assert {k: one.epochs for k, one in found.items()} == {1: 320, 2: 160, 4: 80, 8: 40, 16: 20}
    assert found[16].lr_decays == (9, 18) and found[1].lr_decays == (145, 291)


# known value


def test_a_shorter_training_keeps_its_places_and_everything_else() -> None:
    recipe = named_recipe("paper/cifar10-1.00")
    assert shortened(recipe, 1.0) == recipe
    assert shortened(recipe, 0.1) == replace(recipe, epochs=44, lr_decays=(20, 40))
    assert shortened(recipe, 1e-6) == replace(recipe, epochs=1, lr_decays=(1,))
    attacked = shortened(named_recipe("smoothadv/cifar10-0.25"), 0.2)
    assert (attacked.epochs, attacked.lr_decays) == (30, (10, 20))
    assert attacked.loss["epsilon_ramp"] == 2


def test_what_begins_at_an_epoch_begins_before_the_end() -> None:
    sun = TrainRecipe(epochs=150, lr_decays=(), drop_epoch=60, loss=Loss("sun", attack_epoch=60))
    for share, begins in ((0.1, 6), (0.01, 1), (0.001, 0)):
        short = shortened(sun, share)
        assert (short.drop_epoch, short.loss["attack_epoch"]) == (begins, begins)


# refusal


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(Mistake, match=r"^share must be in \(0, 1\], got "):
        shortened(TrainRecipe(), share)


def test_fewer_copies_than_one_epoch_shows_are_refused() -> None:
    with pytest.raises(Mistake, match=r"^copies must be at least k, 16, got 15$"):
        of_copies(TrainRecipe(k=16), 15)
