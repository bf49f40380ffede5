from dataclasses import replace

import pytest
import torch
from loss_batches import batch_of, loss_before_and_after_a_step, losses_of, without_values
from tiny_models import tiny_recipe, tiny_split

from macer.attacks.noise import sphere_attack
from macer.losses.distillation import distillation_term
from macer.losses.macer_consistency import macer_consistency, macer_consistency_losses
from macer.losses.objective import settings_of
from macer.models.build import build_model
from macer.system.errors import Mistake
from macer.training.step import Trainer

TAUGHT = {"teacher": "run", "distillation": 2.0}
BATCH_NORM = "tiny_models:tiny_with_batch_norm"


def recipe_of(**changes):
    settings = {"loss": "macer-hard-noise", "steps": 1, "step_size": 0.6, "lam": 2.0, "beta": 4.0}
    return tiny_recipe(**settings | changes)


def teacher():
    torch.manual_seed(9)
    return build_model("tiny_models:tiny", num_classes=3, shape=(1, 8, 8)).eval()


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
    known = settings_of(macer_consistency, "macer-consistency")
    shared = {name: value for name, value in batch.recipe.loss.items() if name in known}
    assert len(shared) == 6
    assert torch.equal(losses_of(batch), macer_consistency(batch, **shared))


def test_the_attack_neither_trains_nor_counts_for_batch_norm():
    batch = batch_of(recipe_of(model=BATCH_NORM))
    losses_of(batch).mean().backward()
    counted = [int(n) for name, n in batch.network.state_dict().items() if "num_batches" in name]
    assert counted == [1]
    assert all(part.training for part in batch.network.modules())


@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("taught", [{}, TAUGHT, TAUGHT | {"targets": "mean"}])
def test_it_never_looks_at_a_value(lam, taught):
    batch = replace(batch_of(recipe_of(lam=lam, **taught)), teacher=teacher())
    losses = losses_of(without_values(batch))
    losses.mean().backward()
    assert losses.shape == (64,)


@pytest.mark.parametrize("targets", ["copies", "mean"])
def test_with_a_teacher_its_weighted_divergence_on_the_attacked_copies_is_added(targets):
    batch = replace(batch_of(recipe_of()), teacher=teacher())
    noise = sphere_attack(
        batch.network, batch.images, batch.labels, batch.noise, step_size=0.6, steps=1
    )
    copies = (batch.images[:, None] + noise).flatten(0, 1)
    term = distillation_term(
        batch.logits(noise=noise),
        batch.teacher(copies).view(64, 4, 3),
        temperature=2.0,
        targets=targets,
    )
    taught = {"teacher": "run", "distillation": 3.0, "temperature": 2.0, "targets": targets}
    torch.testing.assert_close(losses_of(batch, **taught), losses_of(batch) + 3 * term)
    assert term.mean() > 0.01


def test_a_teacher_with_a_weight_of_0_is_not_asked():
    batch = batch_of(recipe_of())
    assert torch.equal(losses_of(replace(batch, teacher=teacher())), losses_of(batch))


def test_the_teacher_has_no_gradient_and_is_left_alone():
    batch = replace(batch_of(recipe_of(**TAUGHT)), teacher=teacher().requires_grad_(True))
    state = {name: t.clone() for name, t in batch.teacher.state_dict().items()}
    losses_of(batch).mean().backward()
    assert all(p.grad is None for p in batch.teacher.parameters())
    assert all(p.grad.norm() > 0 for p in batch.network.parameters())
    assert all(torch.equal(t, state[name]) for name, t in batch.teacher.state_dict().items())


@pytest.mark.medium
def test_a_network_learns_what_its_teacher_says_and_not_the_labels():
    """A teacher that is sure of class 0, and no other term."""
    nothing = {"lam": 0.0, "consistency": 0.0, "eta": 0.0, "step_size": 0.0}
    recipe = recipe_of(**nothing, **TAUGHT | {"distillation": 100.0}, epochs=20, lr=0.02)
    model = batch_of(recipe).network
    sure = teacher()
    with torch.no_grad():
        sure[1][4].bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    trainer = Trainer(recipe, model, tiny_split(), torch.device("cpu"), teacher=sure)
    for _ in range(recipe.epochs):
        for _ in trainer.rest_of_epoch():
            pass
    batch = batch_of(recipe)
    with torch.no_grad():
        assert (model.eval()(batch.images).argmax(1) == 0).all()


def test_a_step_of_training_reduces_the_loss():
    before, after = loss_before_and_after_a_step(recipe_of(batch=64, lr=0.05))
    assert after < before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"distillation": 0.5},
            "teacher must be given with distillation 0.5, got none; add --teacher RUN",
        ),
        (
            {"teacher": "run"},
            "distillation must be > 0 with the teacher run, got 0; add --distillation 1",
        ),
    ],
)
def test_a_teacher_without_a_weight_and_a_weight_without_a_teacher_are_refused(settings, message):
    with pytest.raises(Mistake) as mistake:
        losses_of(batch_of(recipe_of(**settings)))
    assert str(mistake.value) == message
