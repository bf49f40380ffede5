import pytest
import reference
import torch
import torch.nn.functional as F
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
from macer.losses.macer import macer_losses

# reference


@pytest.mark.parametrize("k", [1, 4])
def test_the_losses_are_the_cross_entropies_of_the_noisy_copies(k):
    logits, labels = random_logits(0, k=k)
    expected = reference.gaussian_objective(logits.numpy(), labels.numpy())
    losses = gaussian_losses(logits, labels)
    assert losses.shape == labels.shape
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)


# law


def test_gaussian_training_is_macer_with_k_1_and_lam_0():
    logits, labels = random_logits(1, k=1)
    macer = macer_losses(logits, labels, sigma=0.5, lam=0.0, gamma=8.0, beta=16.0)
    torch.testing.assert_close(gaussian_losses(logits, labels), macer)


def test_with_many_copies_it_is_at_least_macers_cross_entropy():
    """Jensen's inequality: −log of a mean is at most the mean of −log."""
    logits, labels = random_logits(2, k=8, scale=2.0)
    macer = macer_losses(logits, labels, sigma=0.5, lam=0.0, gamma=8.0, beta=16.0)
    assert (gaussian_losses(logits, labels) > macer).all()


def test_gradients_pass_gradcheck():
    logits, labels = random_logits(3, images=4, k=2, classes=3)
    assert torch.autograd.gradcheck(lambda u: gaussian_losses(u, labels), logits.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, dtype):
    logits, labels = extreme_logits(extreme, k=3, dtype=dtype)
    losses = gaussian_losses(logits, labels)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all() and logits.grad.isfinite().all()


def test_the_objective_is_the_formula_on_the_networks_outputs():
    batch = batch_of(tiny_recipe(loss="gaussian", k=2))
    outputs = batch.logits().flatten(0, 1)
    expected = F.cross_entropy(outputs, batch.labels.repeat_interleave(2))
    assert losses_of(batch).mean().item() == pytest.approx(expected.item())


@pytest.mark.parametrize("k", [1, 3])
def test_a_step_of_training_reduces_the_loss(k):
    before, after = loss_before_and_after_a_step(tiny_recipe(loss="gaussian", k=k, batch=64))
    assert after < before
