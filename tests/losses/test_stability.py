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

from macer.losses.gaussian import gaussian_losses
from macer.losses.stability import stability_losses


def random_pair(seed, **sizes):
    """Outputs without noise (images, classes) and with it (images, k, classes), and labels."""
    logits, labels = random_logits(seed, **sizes)
    return logits[:, 0] + 0.5, logits[:, 1:], labels


# reference


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("lam", [0.0, 1.0, 2.0])
def test_the_losses_are_cross_entropy_and_stability_term(k, lam):
    clean, logits, labels = random_pair(0, k=k)
    arrays = (t.numpy() for t in (clean, logits, labels))
    losses = stability_losses(clean, logits, labels, lam=lam)
    assert losses.shape == labels.shape
    assert losses.mean().item() == pytest.approx(
        reference.stability_objective(*arrays, lam=lam), rel=1e-6
    )


# law


def test_with_lam_0_it_is_training_without_noise():
    clean, logits, labels = random_pair(1)
    losses = stability_losses(clean, logits, labels, lam=0.0)
    torch.testing.assert_close(losses, gaussian_losses(clean[:, None], labels))


def test_without_noise_and_sure_of_the_label_it_is_cross_entropy_1_plus_lam_times():
    """Then the clean outputs are as good as the label."""
    logits, labels = random_logits(2, k=1)
    clean = logits[:, 0].scatter(1, labels[:, None], 1e3)
    losses = stability_losses(clean, logits, labels, lam=2.0)
    torch.testing.assert_close(losses, 2.0 * gaussian_losses(logits, labels))


def test_the_clean_outputs_are_differentiated_in_both_terms():
    clean, logits, labels = random_pair(3)
    gradients = []
    for lam in (0.0, 2.0):
        u = clean.clone().requires_grad_()
        stability_losses(u, logits, labels, lam=lam).sum().backward()
        gradients.append(u.grad)
    assert not torch.allclose(*gradients)


def test_gradients_pass_gradcheck():
    clean, logits, labels = random_pair(4, images=4, k=3, classes=3)
    assert torch.autograd.gradcheck(
        lambda u, v: stability_losses(u, v, labels, lam=2.0),
        (clean.requires_grad_(), logits.requires_grad_()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, dtype):
    outputs, labels = extreme_logits(extreme, k=4, dtype=dtype)
    losses = stability_losses(outputs[:, 0], outputs[:, 1:], labels, lam=2.0)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all() and outputs.grad.isfinite().all()


def test_the_network_sees_each_image_once_without_noise_and_k_times_with_it():
    batch = batch_of(tiny_recipe(loss="stability", k=3))
    seen = []
    batch.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    losses_of(batch)
    clean, noisy = seen
    torch.testing.assert_close(clean, batch.images)
    torch.testing.assert_close(noisy, (batch.images[:, None] + batch.noise).flatten(0, 1))


def test_lam_is_that_of_the_step():
    recipe = tiny_recipe(loss="stability", lam=2.0)
    plain, scheduled = losses_of(batch_of(recipe)), losses_of(batch_of(recipe), lam=0.0)
    assert (plain > scheduled).all()


def test_a_step_of_training_reduces_the_loss():
    before, after = loss_before_and_after_a_step(tiny_recipe(loss="stability", k=1, batch=64))
    assert after < before
