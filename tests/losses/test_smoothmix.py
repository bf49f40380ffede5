import sys
from dataclasses import replace

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
    without_values,
)
from tiny_models import tiny_recipe

from macer.attacks.images import log_z_bar, smoothed_loss
from macer.losses.gaussian import gaussian_losses
from macer.losses.smoothmix import smoothmix_losses, unbounded_images


def mix_recipe(**changes):
    return tiny_recipe(**{"loss": "smoothmix", "eta": 5.0, "eta_ramp": 0} | changes)


def random_pair(seed, **shape):
    """Logits of images and of mixed images, labels that are mostly right, and shares w."""
    logits, labels = random_logits(seed, **shape)
    mixed, _ = random_logits(seed + 100, **shape)
    w = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)).double() / 2
    return logits, mixed, labels, w


def far_images(batch):
    settings = batch.recipe.loss
    return unbounded_images(batch, steps=settings["steps"], step_size=settings["step_size"])


def in_grey(batch):
    """The batch with images so far from black and white that no step is clamped."""
    return replace(batch, images=0.4 + 0.2 * batch.images)


# reference


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("eta", [1.0, 5.0])
def test_the_losses_are_cross_entropy_and_divergence_from_the_softened_targets(m, eta):
    logits, mixed, labels, w = random_pair(0, k=m)
    losses = smoothmix_losses(logits, mixed, labels, w, eta=eta)
    rows = zip(logits.numpy(), mixed.numpy(), labels.tolist(), w.tolist(), strict=True)
    expected = torch.tensor([reference.smoothmix_loss(*row, eta=eta) for row in rows]).double()
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=0)


def test_the_mixed_image_lies_between_the_image_and_its_adversary():
    batch = replace(batch_of(mix_recipe(eta=2.0)), uniform=lambda count: torch.arange(count) / 64)
    seen = []
    batch.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    losses = losses_of(batch)
    w = torch.arange(64) / 128
    far = far_images(batch)
    mixed = torch.stack([(1 - s) * x + s * y for s, x, y in zip(w, batch.images, far, strict=True)])
    copies = (mixed[:, None] + batch.noise).flatten(0, 1)
    assert any(torch.allclose(inputs, copies, atol=1e-6) for inputs in seen)
    expected = smoothmix_losses(batch.logits(), batch.logits(mixed), batch.labels, w, eta=2.0)
    torch.testing.assert_close(losses, expected)


# law


def test_with_eta_0_it_is_gaussian_training():
    logits, mixed, labels, w = random_pair(1)
    losses = smoothmix_losses(logits, mixed, labels, w, eta=0.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, labels))
    batch = batch_of(mix_recipe(eta=0.0))
    expected = gaussian_losses(batch.logits(), batch.labels)
    torch.testing.assert_close(losses_of(batch), expected)


def test_an_image_that_is_wrong_has_no_mixed_term():
    logits, mixed, _, w = random_pair(2)
    wrong = logits.softmax(2).mean(1).argmin(1)
    losses = smoothmix_losses(logits, mixed, wrong, w, eta=5.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, wrong))
    right = logits.softmax(2).mean(1).argmax(1)
    assert (
        smoothmix_losses(logits, mixed, right, w, eta=5.0) > gaussian_losses(logits, right)
    ).all()


def test_outputs_that_are_the_targets_have_no_divergence():
    logits, _, _, w = random_pair(3, k=1)
    z = logits.softmax(2)
    target = (1 - w[:, None, None]) * z + w[:, None, None] / 10
    labels = z[:, 0].argmax(1)
    losses = smoothmix_losses(logits, target.log(), labels, w, eta=5.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, labels))


def test_the_adversary_is_as_far_as_its_steps_lead():
    """No ball holds it back: with one direction uphill, T steps of length α lead αT far."""
    far = {}
    for steps in (1, 3):
        batch = in_grey(batch_of(mix_recipe(steps=steps, step_size=0.02)))
        moved = (far_images(batch) - batch.images).flatten(1).norm(dim=1)
        assert (moved <= steps * 0.02 * (1 + 1e-5)).all()
        assert moved.median() == pytest.approx(steps * 0.02, rel=0.02)
        before, far[steps] = (
            smoothed_loss(log_z_bar(batch.network, x, batch.noise), batch.labels).mean()
            for x in (batch.images, far_images(batch))
        )
        assert far[steps] > before
    assert far[3] > far[1]


def test_a_step_is_2_sigma_unless_the_recipe_says_otherwise():
    batch = batch_of(mix_recipe(steps=2, sigma=0.1))
    same = replace(batch, recipe=mix_recipe(steps=2, sigma=0.1, step_size=0.2))
    other = replace(batch, recipe=mix_recipe(steps=2, sigma=0.1, step_size=0.4))
    assert torch.equal(far_images(batch), far_images(same))
    assert not torch.allclose(far_images(batch), far_images(other), atol=1e-2)


def test_every_step_has_the_length_of_one(monkeypatch):
    asked = {}

    def attack(network, images, labels, noise, **settings):
        asked.update(settings)
        return images

    monkeypatch.setattr(sys.modules["macer.losses.smoothmix"], "pgd", attack)
    far_images(batch_of(mix_recipe(steps=4, sigma=0.1)))
    assert asked == {"epsilon": pytest.approx(0.8), "steps": 4, "step_size": 0.2}


def test_the_adversary_is_in_the_unit_interval():
    images = far_images(batch_of(mix_recipe(step_size=3.0)))
    assert images.min() == 0 and images.max() == 1


def test_eta_rises_over_the_first_epochs():
    batch = replace(batch_of(mix_recipe(eta_ramp=4)), uniform=lambda n: torch.full((n,), 0.6))
    plain = gaussian_losses(batch.logits(), batch.labels)
    first, second, last = (losses_of(replace(batch, epoch=e)) - plain for e in (0.5, 1.0, 9.0))
    assert (last > 0).any()
    torch.testing.assert_close(4 * first, last, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(2 * second, last, rtol=1e-4, atol=1e-5)


def test_gradients_pass_gradcheck():
    logits, mixed, labels, w = random_pair(4, images=4, k=3, classes=3)
    assert torch.autograd.gradcheck(
        lambda u, v: smoothmix_losses(u, v, labels, w, eta=5.0),
        (logits.requires_grad_(), mixed.requires_grad_()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("share", [0.0, 1e-12, 0.4999])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("other", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, other, m, share, dtype):
    logits, labels = extreme_logits(extreme, k=m, dtype=dtype)
    mixed, _ = extreme_logits(other, k=m, dtype=dtype)
    losses = smoothmix_losses(logits, mixed, labels, torch.full((10,), share), eta=5.0)
    losses.sum().backward()
    assert losses.dtype == torch.float32 and losses.isfinite().all()
    assert logits.grad.isfinite().all() and mixed.grad.isfinite().all()


@pytest.mark.medium
def test_it_never_looks_at_a_value():
    losses = losses_of(without_values(batch_of(mix_recipe())))
    losses.mean().backward()
    assert losses.shape == (64,)


def test_a_step_of_training_reduces_the_loss():
    before, after = loss_before_and_after_a_step(mix_recipe(batch=64, lr=0.05, eta=1.0))
    assert after < before
