from dataclasses import replace

import pytest
import reference
import torch
from loss_batches import batch_of, loss_before_and_after_a_step, losses_of, without_values
from tiny_models import tiny_recipe

from macer.attacks.noise import sphere_attack
from macer.losses.gaussian import gaussian_losses

BATCH_NORM = "tiny_models:tiny_with_batch_norm"


def sun_recipe(**changes):
    return tiny_recipe(**{"loss": "sun", "steps": 3, "step_size": 0.25} | changes)


# reference


def test_the_loss_is_gaussian_trainings_under_the_attacked_noise():
    batch = batch_of(sun_recipe())
    arguments = (batch.network, batch.images, batch.labels, batch.noise)
    noise = sphere_attack(*arguments, step_size=0.25, steps=3)
    logits = batch.logits(noise=noise).detach().numpy()
    expected = reference.gaussian_objective(logits, batch.labels.numpy())
    losses = losses_of(batch)
    assert losses.shape == batch.labels.shape
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)


# law


def test_without_steps_it_is_gaussian_training():
    batch = batch_of(sun_recipe(steps=0))
    assert torch.equal(losses_of(batch), gaussian_losses(batch.logits(), batch.labels))


@pytest.mark.parametrize(("epoch", "attacked"), [(0.0, False), (4.9, False), (5.0, True)])
def test_until_the_attack_begins_it_is_gaussian_training(epoch, attacked):
    batch = replace(batch_of(sun_recipe(attack_epoch=5, epochs=9)), epoch=epoch)
    plain = gaussian_losses(batch.logits(), batch.labels)
    assert torch.equal(losses_of(batch), plain) != attacked
    if attacked:
        assert losses_of(batch).mean() > plain.mean() + 1e-3


def test_the_loss_rises_with_the_length_and_the_number_of_steps():
    batch = batch_of(sun_recipe())
    small, longer, more = (
        losses_of(replace(batch, recipe=sun_recipe(step_size=size, steps=steps))).mean()
        for size, steps in ((0.02, 1), (0.1, 1), (0.1, 3))
    )
    assert gaussian_losses(batch.logits(), batch.labels).mean() < small < longer < more


def test_the_attack_neither_trains_nor_counts_for_batch_norm():
    batch = batch_of(sun_recipe(model=BATCH_NORM))
    losses_of(batch).mean().backward()
    counted = [int(n) for name, n in batch.network.state_dict().items() if "num_batches" in name]
    assert counted == [1]
    assert all(part.training for part in batch.network.modules())


def test_weights_receive_gradients_in_bf16():
    batch = batch_of(sun_recipe())
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(batch)
    losses.mean().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad.norm() > 0 for p in batch.network.parameters())


def test_it_never_looks_at_a_value():
    losses = losses_of(without_values(batch_of(sun_recipe())))
    losses.mean().backward()
    assert losses.shape == (64,)


def test_a_step_of_training_reduces_the_loss():
    before, after = loss_before_and_after_a_step(sun_recipe(batch=64, lr=0.05))
    assert after < before
