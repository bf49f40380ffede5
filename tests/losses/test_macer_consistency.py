import pytest
import reference
import torch
from loss_batches import (
    EXTREMES,
    batch_of,
    extreme_logits,
    loss_before_and_after_a_step,
    losses_of,
    random_logits,
)
from tiny_models import tiny_recipe

from macer.losses.consistency import consistency_losses
from macer.losses.macer import macer_losses
from macer.losses.macer_consistency import macer_consistency_losses

MACER = {"sigma": 0.5, "lam": 4.0, "gamma": 8.0, "beta": 16.0}


def test_macer_consistency_is_algorithm_1_and_the_regularisation():
    logits, labels = random_logits(1, k=8, scale=0.3)
    both = macer_consistency_losses(logits, labels, **MACER, consistency=10.0, eta=0.5)
    arrays = logits.numpy(), labels.numpy()
    regularised = reference.consistency_objective(*arrays, lam=10.0, eta=0.5)
    expected = reference.macer_objective(*arrays, **MACER)
    expected += regularised - reference.gaussian_objective(*arrays)
    assert both.mean().item() == pytest.approx(expected, rel=1e-6)


def test_macer_consistency_without_weights_is_macer():
    logits, labels = random_logits(5, k=8, scale=0.3)
    both = macer_consistency_losses(logits, labels, **MACER, consistency=0.0, eta=0.0)
    torch.testing.assert_close(both, macer_losses(logits, labels, **MACER))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, m, dtype):
    logits, labels = extreme_logits(extreme, k=m, dtype=dtype)
    losses = consistency_losses(logits, labels, lam=20.0, eta=0.5)
    losses = losses + macer_consistency_losses(logits, labels, **MACER, consistency=10.0, eta=0.5)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all() and logits.grad.isfinite().all()


def test_the_weights_are_the_recipes_and_lam_is_that_of_the_step():
    recipe = tiny_recipe(
        loss="macer-consistency", k=4, lam=9.0, eta=0.7, consistency=3.0, sigma=0.5
    )
    batch = batch_of(recipe)
    expected = macer_consistency_losses(
        batch.logits(), batch.labels, **MACER, consistency=3.0, eta=0.7
    )
    torch.testing.assert_close(losses_of(batch, lam=4.0), expected)


def test_a_step_of_training_reduces_the_loss():
    recipe = tiny_recipe(loss="macer-consistency", batch=64, lr=0.05)
    before, after = loss_before_and_after_a_step(recipe)
    assert after < before
