import pytest
import reference
import torch
from loss_batches import (
    batch_of,
    loss_before_and_after_a_step,
    losses_of,
    random_logits,
)
from tiny_models import tiny_recipe

from macer.losses.consistency import consistency_losses, consistency_terms
from macer.losses.gaussian import gaussian_losses

# reference


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize(("lam", "eta"), [(20.0, 0.5), (5.0, 0.0), (0.0, 1.0)])
def test_the_losses_are_cross_entropy_divergence_and_entropy(m, lam, eta):
    logits, labels = random_logits(0, k=m)
    expected = reference.consistency_objective(logits.numpy(), labels.numpy(), lam=lam, eta=eta)
    losses = consistency_losses(logits, labels, lam=lam, eta=eta)
    assert losses.shape == labels.shape
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)


# law


def test_with_lam_and_eta_0_it_is_gaussian_training():
    logits, labels = random_logits(2)
    losses = consistency_losses(logits, labels, lam=0.0, eta=0.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, labels))


def test_copies_that_agree_have_no_divergence():
    logits, labels = random_logits(3, k=1)
    agreeing = logits.expand(-1, 4, -1)
    with_lam, without = (consistency_losses(agreeing, labels, lam=c, eta=0.5) for c in (20.0, 0.0))
    torch.testing.assert_close(with_lam, without)


def test_copies_that_disagree_have_one():
    logits, _ = random_logits(3, k=2)
    assert (consistency_terms(logits, lam=1.0, eta=0.0) > 0).all()


def test_with_eta_equal_to_lam_it_is_the_cross_entropy_of_the_copies_under_their_mean():
    logits, _ = random_logits(4)
    z = logits.softmax(2)
    expected = -(z.mean(1, keepdim=True) * z.log()).sum(2).mean(1)
    torch.testing.assert_close(consistency_terms(logits, lam=3.0, eta=3.0), 3.0 * expected)


def test_gradients_pass_gradcheck():
    logits, labels = random_logits(6, images=4, k=3, classes=3)
    assert torch.autograd.gradcheck(
        lambda u: consistency_losses(u, labels, lam=10.0, eta=0.5), logits.requires_grad_()
    )


def test_the_weights_are_the_recipes_and_lam_is_that_of_the_step():
    batch = batch_of(tiny_recipe(loss="consistency", k=4, lam=9.0, eta=0.7))
    expected = consistency_losses(batch.logits(), batch.labels, lam=4.0, eta=0.7)
    torch.testing.assert_close(losses_of(batch, lam=4.0), expected)


def test_a_step_of_training_reduces_the_loss():
    recipe = tiny_recipe(loss="consistency", batch=64, lr=0.05)
    before, after = loss_before_and_after_a_step(recipe)
    assert after < before
