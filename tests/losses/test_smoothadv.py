from dataclasses import replace

import pytest
import reference
import torch
from loss_batches import batch_of, loss_before_and_after_a_step, losses_of, without_values
from tiny_models import tiny_recipe

from macer.attacks.images import ddn, pgd
from macer.losses.gaussian import gaussian_losses

BATCH_NORM = "tiny_models:tiny_with_batch_norm"


def adv_recipe(**changes):
    return tiny_recipe(**{"loss": "smoothadv", "epsilon": 0.5, "epsilon_ramp": 0} | changes)


def grey(batch):
    """The batch with images so far from black and white that no step is clamped."""
    return replace(batch, images=0.4 + 0.2 * batch.images)


def attacked(batch):
    """The images that the loss shows its network last."""
    seen = []
    hook = batch.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    losses_of(batch)
    hook.remove()
    noisy = seen[-1].detach().view_as(batch.noise)
    return (noisy - batch.noise)[:, 0]


def distances(batch):
    return (attacked(batch) - batch.images).flatten(1).norm(dim=1)


def tried_hard(batch):
    """The batch with a network that has learnt its images, so that there is something to lose."""
    optimizer = torch.optim.Adam(batch.network.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        gaussian_losses(batch.logits(), batch.labels).mean().backward()
        optimizer.step()
    return batch


# reference


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_the_loss_is_gaussian_trainings_at_the_attacked_images_under_the_same_noise(attack):
    batch = tried_hard(batch_of(adv_recipe(attack=attack, epsilon=1.0, steps=5)))
    arguments = (batch.network, batch.images, batch.labels, batch.noise)
    images = {"pgd": pgd, "ddn": ddn}[attack](*arguments, epsilon=1.0, steps=5)
    logits = batch.logits(images).detach().numpy()
    expected = reference.gaussian_objective(logits, batch.labels.numpy())
    losses = losses_of(batch)
    assert losses.shape == batch.labels.shape
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)
    assert not torch.allclose(losses, gaussian_losses(batch.logits(), batch.labels))


# law


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
@pytest.mark.parametrize("changes", [{"epsilon": 0.0}, {"steps": 0}])
def test_without_an_attack_it_is_gaussian_training(attack, changes):
    batch = batch_of(adv_recipe(attack=attack, **changes))
    expected = gaussian_losses(batch.logits(), batch.labels)
    torch.testing.assert_close(losses_of(batch), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_the_loss_rises_with_epsilon(attack):
    batch = tried_hard(batch_of(adv_recipe(attack=attack, steps=10)))
    means = [
        losses_of(replace(batch, recipe=adv_recipe(attack=attack, steps=10, epsilon=e))).mean()
        for e in (0.0, 1.5, 3.0)  # DDN leaves an image that it cannot turn
    ]
    assert means[0] + 1e-3 < means[1] < means[2] - 1e-3


def test_the_perturbation_has_the_length_that_is_asked_for():
    for epsilon in (0.05, 0.2):
        batch = grey(batch_of(adv_recipe(epsilon=epsilon, steps=6)))
        assert distances(batch) == pytest.approx(torch.full((64,), epsilon), rel=1e-3)


def test_steps_and_their_length_are_the_recipes():
    batch = grey(batch_of(adv_recipe(epsilon=0.2, steps=1, step_size=0.03)))
    assert distances(batch) == pytest.approx(torch.full((64,), 0.03), rel=1e-3)
    two = replace(batch, recipe=adv_recipe(epsilon=0.2, steps=2, step_size=0.03))
    assert (distances(two) > 0.031).all()


@pytest.mark.parametrize(("epoch", "share"), [(0.0, 0.25), (0.9, 0.25), (1.5, 0.5), (7.0, 1.0)])
def test_epsilon_rises_over_the_first_epochs(epoch, share):
    batch = grey(batch_of(adv_recipe(epsilon=0.2, steps=6, epsilon_ramp=4)))
    found = distances(replace(batch, epoch=epoch))
    assert found == pytest.approx(torch.full((64,), 0.2 * share), rel=1e-3)


def test_ddn_begins_with_the_epsilon_of_the_epoch():
    batch = tried_hard(batch_of(adv_recipe(attack="ddn", epsilon=2.0, steps=3, epsilon_ramp=4)))
    arguments = (batch.network, batch.images, batch.labels, batch.noise)
    expected = ddn(*arguments, epsilon=0.5, steps=3, first_norm=0.5)
    torch.testing.assert_close(attacked(batch), expected)


def test_attacked_images_are_in_the_unit_interval():
    images = attacked(batch_of(adv_recipe(epsilon=5.0)))
    assert images.min() == 0 and images.max() == 1


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_the_attack_neither_trains_nor_counts_for_batch_norm(attack):
    batch = batch_of(adv_recipe(model=BATCH_NORM, attack=attack))
    losses_of(batch).mean().backward()
    state = batch.network.state_dict()
    assert [int(n) for name, n in state.items() if "num_batches" in name] == [1]
    assert all(part.training for part in batch.network.modules())
    expected = [p.grad.clone() for p in batch.network.parameters()]
    images = attacked(batch_of(batch.recipe))
    again = batch_of(batch.recipe)
    gaussian_losses(again.logits(images), again.labels).mean().backward()
    for gradient, p in zip(expected, again.network.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad)


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
@pytest.mark.parametrize("steps", [0, 2])
def test_weights_receive_gradients_in_bf16(attack, steps):
    batch = batch_of(adv_recipe(attack=attack, steps=steps))
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(batch)
    losses.mean().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad.norm() > 0 for p in batch.network.parameters())


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_it_never_looks_at_a_value(attack):
    losses = losses_of(without_values(batch_of(adv_recipe(attack=attack))))
    losses.mean().backward()
    assert losses.shape == (64,)


@pytest.mark.parametrize("attack", ["pgd", "ddn"])
def test_a_step_of_training_reduces_the_loss(attack):
    before, after = loss_before_and_after_a_step(adv_recipe(attack=attack, batch=64, lr=0.05))
    assert after < before
