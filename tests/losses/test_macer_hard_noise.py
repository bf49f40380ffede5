import pytest
import torch
from loss_batches import batch_of, loss_before_and_after_a_step, losses_of, without_values
from tiny_models import tiny_recipe

from macer.attacks.noise import sphere_attack
from macer.losses.macer_consistency import macer_consistency, macer_consistency_losses

BATCH_NORM = "tiny_models:tiny_with_batch_norm"


def recipe_of(**changes):
    settings = {"loss": "macer-hard-noise", "steps": 1, "step_size": 0.6, "lam": 2.0, "beta": 4.0}
    return tiny_recipe(**settings | changes)


def test_it_is_macer_and_consistency_under_the_attacked_noise():
    batch = batch_of(recipe_of(consistency=3.0, eta=0.7, gamma=6.0))
    noise = sphere_attack(
        batch.network, batch.images, batch.labels, batch.noise, step_size=0.6, steps=1
    )
    terms = {"sigma": batch.recipe.sigma, "lam": 2.0, "gamma": 6.0, "beta": 4.0}
    expected = macer_consistency_losses(
        batch.logits(noise=noise), batch.labels, **terms, consistency=3.0, eta=0.7
    )
    found = losses_of(batch)
    torch.testing.assert_close(found, expected)
    assert found.mean() > losses_of(batch, steps=0).mean() + 1e-3


def test_without_steps_it_is_macer_consistency():
    batch = batch_of(recipe_of(steps=0))
    shared = {name: value for name, value in batch.recipe.loss.items() if "step" not in name}
    assert torch.equal(losses_of(batch), macer_consistency(batch, **shared))


def test_the_attack_neither_trains_nor_counts_for_batch_norm():
    batch = batch_of(recipe_of(model=BATCH_NORM))
    losses_of(batch).mean().backward()
    counted = [int(n) for name, n in batch.network.state_dict().items() if "num_batches" in name]
    assert counted == [1]
    assert all(part.training for part in batch.network.modules())


@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_it_never_looks_at_a_value(lam):
    losses = losses_of(without_values(batch_of(recipe_of(lam=lam))))
    losses.mean().backward()
    assert losses.shape == (64,)


def test_a_step_of_training_reduces_the_loss():
    before, after = loss_before_and_after_a_step(recipe_of(batch=64, lr=0.05))
    assert after < before
