import math

import pytest
import torch
from torch import nn

from macer.recipes import Loss, TrainRecipe
from macer.recipes.schedules import learning_rate, ramp_share, trade_off

PAPER = TrainRecipe(epochs=440, lr=0.01, lr_decays=(200, 400))
COSINE = TrainRecipe(epochs=10, lr=0.4, lr_schedule="cosine")
TRIANGLE = TrainRecipe(epochs=10, lr=0.4, lr_schedule="triangle", lr_peak=0.2)


def lam_recipe(**fields):
    return TrainRecipe(epochs=10, lr_decays=(4, 8), loss=Loss("macer", lam=12.0), **fields)


# reference


@pytest.mark.parametrize("recipe", [PAPER, COSINE])
def test_schedules_are_those_of_torch(recipe):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=recipe.lr)
    scheduler = (
        torch.optim.lr_scheduler.MultiStepLR(optimizer, recipe.lr_decays, gamma=0.1)
        if recipe.lr_schedule == "step"
        else torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs)
    )
    for epoch in range(recipe.epochs):
        assert learning_rate(recipe, epoch) == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()


# law


@pytest.mark.parametrize("peak", [0.0, 0.2, 0.5, 1.0])
def test_a_triangle_is_straight_up_to_its_peak_and_straight_down_from_it(peak):
    recipe = TrainRecipe(epochs=100, lr=0.4, lr_schedule="triangle", lr_peak=peak)
    rates = [learning_rate(recipe, epoch) for epoch in range(100)]
    bends = [
        epoch
        for epoch in range(1, 99)
        if not math.isclose(rates[epoch + 1] - rates[epoch], rates[epoch] - rates[epoch - 1])
    ]
    assert bends == ([100 * peak] if 0 < peak < 1 else [])
    assert max(rates) == pytest.approx(0.4, rel=0.02)


@pytest.mark.parametrize("schedule", ["constant", "deferred", "ramp"])
def test_lam_never_falls_and_ends_at_its_value(schedule):
    recipe = lam_recipe(lam_schedule=schedule)
    values = [trade_off(recipe, step / 7) for step in range(70)]
    assert values == sorted(values)
    assert values[-1] == 12.0


# known value


@pytest.mark.parametrize(
    ("recipe", "epoch", "rate"),
    [
        (PAPER, 0, 0.01), (PAPER, 199.99, 0.01), (PAPER, 200, 0.001), (PAPER, 399.99, 0.001),
        (PAPER, 400, 0.0001), (PAPER, 440, 0.0001),
        (COSINE, 0, 0.4), (COSINE, 2.5, 0.2 + 0.1 * math.sqrt(2)), (COSINE, 5, 0.2),
        (COSINE, 10, 0.0),
        (TRIANGLE, 0, 0.0), (TRIANGLE, 1, 0.2), (TRIANGLE, 2, 0.4), (TRIANGLE, 6, 0.2),
        (TRIANGLE, 10, 0.0),
    ],
)  # fmt: skip
def test_the_learning_rate_at_known_epochs(recipe, epoch, rate):
    assert learning_rate(recipe, epoch) == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize(
    ("schedule", "epoch", "lam"),
    [
        ("constant", 0, 12.0), ("constant", 10, 12.0),
        ("deferred", 0, 0.0), ("deferred", 3.99, 0.0), ("deferred", 4, 12.0),
        ("deferred", 8, 12.0), ("deferred", 10, 12.0),
        ("ramp", 0, 0.0), ("ramp", 1.5, 6.0), ("ramp", 3, 12.0), ("ramp", 10, 12.0),
    ],
)  # fmt: skip
def test_lam_at_known_epochs(schedule, epoch, lam):
    recipe = lam_recipe(lam_schedule=schedule, lam_ramp=0.3)
    assert trade_off(recipe, epoch) == pytest.approx(lam, abs=1e-12)


@pytest.mark.parametrize(
    ("ramp", "epoch", "share"),
    [(10, 0, 0.1), (10, 0.99, 0.1), (10, 1, 0.2), (10, 8.5, 0.9), (10, 9, 1.0), (10, 50, 1.0),
     (1, 0, 1.0), (0, 0, 1.0)],
)  # fmt: skip
def test_a_share_rises_from_epoch_to_epoch(ramp, epoch, share):
    assert ramp_share(epoch, ramp) == pytest.approx(share)
