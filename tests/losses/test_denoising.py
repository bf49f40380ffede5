import pytest
import reference
import torch
from loss_batches import EXTREMES, batch_of, extreme_logits, losses_of, random_logits
from tiny_models import tiny_recipe, tiny_split

from macer.losses.denoising import denoising_losses
from macer.losses.gaussian import gaussian_losses
from macer.models.networks import Normalize
from macer.system.errors import Mistake
from macer.training.step import Trainer

RECIPE = tiny_recipe(
    loss="denoising", model="tiny_models:tiny_with_batch_norm", denoiser="dncnn-small", k=2
)


def random_case(seed, *, k=3):
    logits, labels = random_logits(seed, k=k)
    generator = torch.Generator().manual_seed(seed)
    errors = torch.randn(len(labels), k, 2, 3, 3, generator=generator, dtype=torch.float64)
    return logits, labels, errors


def trainer_of(batch):
    return Trainer(batch.recipe, batch.network, tiny_split(), torch.device("cpu"))


# reference


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(("lam", "mse"), [(1.0, 0.0), (0.0, 1.0), (2.0, 3.0)])
def test_the_losses_are_stability_and_squared_error(k, lam, mse):
    case = random_case(0, k=k)
    losses = denoising_losses(*case, lam=lam, mse=mse)
    assert losses.shape == case[1].shape
    expected = reference.denoising_objective(*(t.numpy() for t in case), lam=lam, mse=mse)
    assert losses.mean().item() == pytest.approx(expected, rel=1e-6)


# law


def test_a_fresh_denoiser_has_the_losses_of_the_classifier_alone():
    batch = batch_of(RECIPE)
    network = batch.network[1]
    network.classifier.eval()
    own = network.classifier(batch.images).argmax(1)
    noisy = (batch.images[:, None] + batch.noise).flatten(0, 1)
    logits = network.classifier(noisy).view(*batch.noise.shape[:2], -1)
    torch.testing.assert_close(losses_of(batch), gaussian_losses(logits, own))
    mse = batch.noise.square().flatten(1).mean(1)
    torch.testing.assert_close(losses_of(batch, lam=0.0, mse=1.0), mse)


def test_the_squared_error_is_that_of_pixels_whatever_the_normalisation():
    batch = batch_of(RECIPE)
    batch.network[0] = Normalize((0.3,), (0.1,))
    mse = batch.noise.square().flatten(1).mean(1)
    torch.testing.assert_close(losses_of(batch, lam=0.0, mse=1.0), mse)


def test_labels_do_not_matter():
    batch = batch_of(RECIPE)
    trainer_of(batch).frozen.keep_in_eval_mode()
    first = losses_of(batch)
    batch.labels.copy_((batch.labels + 1) % 3)
    assert torch.equal(losses_of(batch), first)


def test_gradients_pass_gradcheck():
    logits, labels, errors = (values[:4] for values in random_case(4))
    assert torch.autograd.gradcheck(
        lambda u, e: denoising_losses(u, labels, e, lam=2.0, mse=3.0),
        (logits.requires_grad_(), errors.requires_grad_()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extreme", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, dtype):
    outputs, labels = extreme_logits(extreme, k=4, dtype=dtype)
    errors = torch.zeros(10, 4, 1, 2, 2, dtype=dtype)
    losses = denoising_losses(outputs, labels, errors, lam=2.0, mse=1.0)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all() and outputs.grad.isfinite().all()


@pytest.mark.parametrize(("lam", "mse"), [(1.0, 0.0), (0.0, 1.0)])
def test_training_reduces_the_loss_and_moves_the_denoiser_alone(lam, mse):
    batch = batch_of(RECIPE.changed(lam=lam, mse=mse, batch=64, epochs=8, lr=0.02))
    trainer = trainer_of(batch)
    before = {name: t.clone() for name, t in batch.network.state_dict().items()}
    trainer.network.train()
    trainer.frozen.keep_in_eval_mode()
    first = losses_of(batch).mean()
    while trainer.epoch < 8:
        assert [None for _ in trainer.rest_of_epoch()]
    assert losses_of(batch).mean() < first
    after = batch.network.state_dict()
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    assert all(name.startswith("1.denoiser.") for name in moved)
    assert {n for n, p in batch.network.named_parameters() if p.requires_grad} <= moved


# refusal


def test_a_network_without_a_denoiser_is_refused():
    with pytest.raises(Mistake, match=r"^denoiser must be given with the loss denoising; add "):
        losses_of(batch_of(tiny_recipe(loss="denoising")))
