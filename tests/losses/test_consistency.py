import pytest
import reference
import torch
from loss_batches import (
    EXTREMES,
    batch_of,
    extreme_logits,
    loss_before_and_after_a_step,
    random_logits,
)
from tiny_models import tiny_recipe

from macer.losses import LOSSES
from macer.losses.consistency import (
    consistency_losses,
    consistency_terms,
    macer_consistency_losses,
)
from macer.losses.gaussian import gaussian_losses
from macer.losses.macer import macer_losses

MACER = {"sigma": 0.5, "lam": 4.0, "gamma": 8.0, "beta": 16.0}

# reference


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize(("lam", "eta"), [(20.0, 0.5), (5.0, 0.0), (0.0, 1.0)])
def test_the_losses_are_cross_entropy_divergence_and_entropy(m, lam, eta):
    logits, labels = random_logits(0, k=m)
    expected = reference.consistency_objective(logits.numpy(), labels.numpy(), lam=lam, eta=eta)
    losses = consistency_losses(logits, labels, lam=lam, eta=eta)
    assert losses.shape == labels.shape
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)


def test_macer_consistency_is_algorithm_1_and_the_regularisation():
    logits, labels = random_logits(1, k=8, scale=0.3)
    both = macer_consistency_losses(logits, labels, **MACER, consistency=10.0, eta=0.5)
    arrays = logits.numpy(), labels.numpy()
    regularised = reference.consistency_objective(*arrays, lam=10.0, eta=0.5)
    expected = reference.macer_objective(*arrays, **MACER)
    expected += regularised - reference.gaussian_objective(*arrays)
    assert both.mean().item() == pytest.approx(expected, rel=1e-6)


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


def test_macer_consistency_without_weights_is_macer():
    logits, labels = random_logits(5, k=8, scale=0.3)
    both = macer_consistency_losses(logits, labels, **MACER, consistency=0.0, eta=0.0)
    torch.testing.assert_close(both, macer_losses(logits, labels, **MACER))


def test_gradients_pass_gradcheck():
    logits, labels = random_logits(6, images=4, k=3, classes=3)
    assert torch.autograd.gradcheck(
        lambda u: consistency_losses(u, labels, lam=10.0, eta=0.5), logits.requires_grad_()
    )


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


def test_the_objectives_take_their_weights_from_the_recipe_and_lam_from_the_step():
    recipe = tiny_recipe(k=4, lam=9.0, eta=0.7, consistency=3.0, sigma=0.5)
    batch = batch_of(recipe, lam=4.0)
    logits = batch.logits()
    expected = consistency_losses(logits, batch.labels, lam=4.0, eta=0.7)
    torch.testing.assert_close(LOSSES["consistency"](batch), expected)
    expected = macer_consistency_losses(logits, batch.labels, **MACER, consistency=3.0, eta=0.7)
    torch.testing.assert_close(LOSSES["macer-consistency"](batch), expected)


@pytest.mark.parametrize("loss", ["consistency", "macer-consistency"])
def test_a_step_of_training_reduces_the_loss(loss):
    before, after = loss_before_and_after_a_step(tiny_recipe(loss=loss, batch=64, lr=0.05))
    assert after < before
