import sys
from dataclasses import replace

import pytest
import reference
import torch
from loss_batches import (
    EXTREMES,
    batch_of,
    extreme_logits,
    in_place_of,
    loss_before_and_after_a_step,
    losses_of,
    random_logits,
    without_values,
)
from tiny_models import CLASSES, tiny, tiny_recipe

from macer.attacks.noise import standardised_attack
from macer.losses import LOSSES
from macer.losses.catrs import accepted_copies, catrs, catrs_losses, expected_outputs
from macer.losses.gaussian import gaussian_losses
from macer.system.errors import Mistake


def catrs_recipe(**changes):
    return tiny_recipe(**{"loss": "catrs", "lam": 1.0, "epsilon": 0.5, "steps": 3} | changes)


def teacher():
    torch.manual_seed(9)
    return tiny(len(CLASSES), 1).eval().requires_grad_(False)


def taught(recipe):
    return replace(batch_of(recipe), teacher=teacher())


def random_pair(seed, **shape):
    """Logits of noisy images and under attacked noise, labels, and soft targets."""
    logits, labels = random_logits(seed, **shape)
    attacked, _ = random_logits(seed + 100, **shape)
    targets = random_logits(seed + 200, **shape)[0].softmax(2).mean(1)
    return logits, attacked, labels, targets


# reference


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_the_losses_are_the_easiest_copies_and_the_worst_divergence(m, lam):
    logits, attacked, labels, targets = random_pair(0, k=m)
    targets[0] = torch.eye(10)[3]  # a teacher that is sure
    accepted = torch.arange(16) % m + 1
    losses = catrs_losses(logits, attacked, labels, targets, accepted, lam=lam)
    arrays = (t.numpy() for t in (logits, attacked, labels, targets, accepted))
    expected = [reference.catrs_loss(*row, lam=lam) for row in zip(*arrays, strict=True)]
    torch.testing.assert_close(losses, torch.tensor(expected).double(), rtol=1e-6, atol=0)


def test_the_objective_is_the_loss_under_the_attacked_noise_with_the_teachers_targets():
    batch = taught(catrs_recipe(lam=7.0, sigma=2.0))
    draws = torch.rand(64 * 4, generator=torch.Generator().manual_seed(1))
    batch = replace(batch, uniform=lambda count: draws[:count])
    with torch.no_grad():
        copies = (batch.images[:, None] + batch.noise).flatten(0, 1)
        y_bar = batch.teacher(copies).view(64, 4, 3).softmax(2).mean(1)
    arguments = (batch.network, batch.images, y_bar, batch.noise)
    noise = standardised_attack(*arguments, epsilon=0.5, steps=3)
    logits = batch.logits()
    accepted = accepted_copies(logits, batch.labels, draws.view(64, 4))
    assert {1, 4} < set(accepted.tolist())
    attacked = batch.logits(noise=noise)
    expected = catrs_losses(logits, attacked, batch.labels, y_bar, accepted, lam=3.0)
    torch.testing.assert_close(losses_of(batch, lam=3.0), expected)


# law


def test_with_lam_0_and_every_copy_correct_it_is_gaussian_training():
    logits, attacked, _, targets = random_pair(1)
    labels = torch.full((16,), 3)
    logits[..., 3] += 20
    accepted = accepted_copies(logits, labels, torch.rand(16, 4))
    assert (accepted == 4).all()
    losses = catrs_losses(logits, attacked, labels, targets, accepted, lam=0.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, labels))


@pytest.mark.parametrize("correct", range(5))
def test_the_number_of_accepted_copies_is_binomial_and_at_least_1(correct):
    """Of 4 copies; over 20,000 images each frequency is within five standard errors."""
    logits = torch.zeros(20_000, 4, 3)
    logits[:, :correct, 1] = 1
    logits[:, correct:, 2] = 1
    draws = torch.rand(20_000, 4, generator=torch.Generator().manual_seed(0))
    accepted = accepted_copies(logits, torch.ones(20_000, dtype=torch.int64), draws)
    p = correct / 4
    chances = [(1 - p) ** 4, 4 * p * (1 - p) ** 3, 6 * p**2 * (1 - p) ** 2, 4 * p**3 * (1 - p)]
    chances.append(p**4)
    chances = [0.0, chances[0] + chances[1], *chances[2:]]
    for count, chance in enumerate(chances):
        spread = 5 * (chance * (1 - chance) / 20_000) ** 0.5
        assert (accepted == count).float().mean().item() == pytest.approx(chance, abs=spread + 1e-7)


def test_a_draw_that_equals_the_share_of_correct_copies_is_not_below_it():
    logits = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    draws = torch.tensor([[0.5, 0.25, 0.49, 0.75]])
    assert accepted_copies(logits, torch.tensor([0]), draws).tolist() == [2]


@pytest.mark.parametrize(("step_size", "used"), [(None, None), (0.03, 0.03)])
def test_the_attack_is_the_recipes(step_size, used, monkeypatch):
    asked = {}

    def attack(network, images, targets, noise, **settings):
        asked.update(settings)
        return noise

    monkeypatch.setattr(sys.modules["macer.losses.catrs"], "standardised_attack", attack)
    losses_of(taught(catrs_recipe(epsilon=0.7, steps=5, step_size=step_size)))
    assert asked == {"epsilon": 0.7, "steps": 5, "step_size": used}


def test_only_images_with_every_copy_accepted_have_the_robustness_term():
    logits, attacked, labels, targets = random_pair(2)
    accepted = torch.arange(16) % 4 + 1
    with_lam, without = (
        catrs_losses(logits, attacked, labels, targets, accepted, lam=lam) for lam in (2.0, 0.0)
    )
    assert torch.equal(with_lam > without, accepted == 4)
    assert torch.equal(with_lam[accepted < 4], without[accepted < 4])


def test_outputs_that_are_the_teachers_have_no_divergence():
    logits, _, labels, targets = random_pair(3)
    attacked = targets.log()[:, None].expand(-1, 4, -1)
    accepted = torch.full((16,), 4)
    losses = catrs_losses(logits, attacked, labels, targets, accepted, lam=2.0)
    torch.testing.assert_close(losses, gaussian_losses(logits, labels))


def test_the_hardest_copies_are_the_ones_left_out():
    logits, attacked, labels, targets = random_pair(4)
    shuffled = logits[:, [2, 0, 3, 1]]
    accepted = torch.full((16,), 2)
    one, other = (
        catrs_losses(u, attacked, labels, targets, accepted, lam=0.0) for u in (logits, shuffled)
    )
    torch.testing.assert_close(one, other)
    logits[torch.arange(16), gaussian_worst(logits, labels)] *= -3  # harder still
    harder = catrs_losses(logits, attacked, labels, targets, accepted, lam=0.0)
    torch.testing.assert_close(harder, one)


def gaussian_worst(logits, labels):
    """The copy of each image with the largest cross-entropy."""
    every_copy = labels[:, None, None].expand(-1, logits.shape[1], 1)
    return logits.log_softmax(2).gather(2, every_copy).squeeze(2).argmin(1)


def test_the_targets_have_no_gradient_and_the_teacher_is_left_alone():
    batch = taught(catrs_recipe())
    batch.teacher.requires_grad_(True)
    state = {name: t.clone() for name, t in batch.teacher.state_dict().items()}
    assert not expected_outputs(batch, "").requires_grad
    losses_of(batch).mean().backward()
    assert all(p.grad is None for p in batch.teacher.parameters())
    assert all(torch.equal(t, state[name]) for name, t in batch.teacher.state_dict().items())


def test_the_robustness_term_rises_with_epsilon():
    batch = replace(taught(catrs_recipe()), uniform=torch.zeros)  # every draw below p̂ > 0
    means = [losses_of(batch, epsilon=e, steps=6, lam=5.0).mean() for e in (0.0, 0.2, 0.6)]
    assert means[0] < means[1] < means[2]


def test_gradients_pass_gradcheck():
    logits, attacked, labels, targets = random_pair(5, images=4, k=3, classes=3)
    accepted = torch.tensor([1, 2, 3, 3])
    assert torch.autograd.gradcheck(
        lambda u, v: catrs_losses(u, v, labels, targets, accepted, lam=2.0),
        (logits.requires_grad_(), attacked.requires_grad_()),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("other", EXTREMES)
def test_losses_and_gradients_are_finite_on_extreme_logits(extreme, other, m, dtype):
    logits, labels = extreme_logits(extreme, k=m, dtype=dtype)
    attacked, _ = extreme_logits(other, k=m, dtype=dtype)
    for accepted in (1, m):
        losses = catrs_losses(
            logits, attacked, labels, torch.eye(10), torch.full((10,), accepted), lam=2.0
        )
        losses.sum().backward()
        assert losses.dtype == torch.float32 and losses.isfinite().all()
        assert logits.grad.isfinite().all() and attacked.grad.isfinite().all()


def test_weights_receive_gradients_in_bf16():
    batch = taught(catrs_recipe())
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(batch)
    losses.mean().backward()
    assert losses.dtype == torch.float32
    assert all(p.grad.norm() > 0 for p in batch.network.parameters())


def test_it_never_looks_at_a_value():
    losses = losses_of(without_values(taught(catrs_recipe())))
    losses.mean().backward()
    assert losses.shape == (64,)


def test_a_step_of_training_reduces_the_loss(monkeypatch):
    known = teacher()

    def with_teacher(batch, **settings):
        # The same copies accepted before the step and after it.
        fixed = replace(batch, teacher=known, uniform=lambda n: torch.full((n,), 0.5))
        return catrs(fixed, **settings)

    monkeypatch.setitem(LOSSES, "catrs", in_place_of(catrs, with_teacher))
    before, after = loss_before_and_after_a_step(catrs_recipe(batch=64, lr=0.05))
    assert after < before


# refusal


def test_no_teacher_is_told():
    with pytest.raises(Mistake) as mistake:
        losses_of(batch_of(catrs_recipe()))
    assert str(mistake.value) == (
        "teacher must be a run or a model file with loss catrs, got ''; "
        "train one with loss gaussian and the same sigma"
    )
