import math
from contextlib import nullcontext

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from tiny_models import tiny, tiny_with_batch_norm, tiny_with_dropout
from torch import nn

from macer.attacks.noise import sphere_attack, standardised_attack
from macer.system.errors import Mistake

SHAPE = (1, 4, 4)


def draws(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def network(*, seed=0, scale=1.0, dtype=torch.float32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3))
    with torch.no_grad():
        model[-1].weight *= scale
    return model.to(dtype)


def linear(*, seed=0):
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, dtype=torch.float64))
    model[1].weight.data = draws(3, 16, seed=seed, dtype=torch.float64)
    return model


def setting(model, *, images=4, m=5, sigma=0.25, dtype=torch.float32):
    """Images that the network has right without noise, soft targets, and noise."""
    x = 0.5 + 0.2 * draws(images, *SHAPE, seed=1, dtype=dtype)
    with torch.no_grad():
        labels = model(x).argmax(1)
    noise = sigma * draws(images, m, *SHAPE, seed=2, dtype=dtype)
    return x, labels, 0.1 / 3 + 0.9 * F.one_hot(labels, 3).to(dtype), noise


def attacks(model, x, labels, targets, noise, *, steps=4, size=1.0):
    """Both attacks, over about the same distance."""
    return [
        sphere_attack(model, x, labels, noise, step_size=size / max(steps, 1), steps=steps),
        standardised_attack(model, x, targets, noise, epsilon=size, steps=steps),
    ]


def copies_loss(model, x, labels, noise):
    with torch.no_grad():
        u = model((x[:, None] + noise).flatten(0, 1))
    return F.cross_entropy(u, labels.repeat_interleave(noise.shape[1]), reduction="none")


def norms(noise):
    return noise.flatten(2).norm(dim=2)


# reference: one copy at a time in NumPy float64, with the gradient of a linear network by hand


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("size", [0.1, 1.0])
def test_the_attacks_are_the_papers(steps, size):
    model = linear()
    x, labels, targets, noise = setting(model, m=6, sigma=0.5, dtype=torch.float64)
    W, b = (p.detach().numpy() for p in model[1].parameters())

    def gradient(target):
        return lambda point: W.T @ (reference.softmax(W @ point + b, 1.0) - target)

    def literal(i, j):
        point, eta, y = x[i].flatten().numpy(), noise[i, j].flatten().numpy(), int(labels[i])
        sphere = reference.sphere_attack(
            gradient(np.eye(3)[y]), lambda v: int(np.argmax(W @ v + b)), point, y, eta,
            step_size=size / steps, steps=steps,
        )  # fmt: skip
        kept = reference.standardised_attack(
            gradient(targets[i].numpy()), point, eta, epsilon=size, steps=steps
        )
        return sphere, kept

    found = attacks(model, x, labels, targets, noise, steps=steps, size=size)
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            for attacked, expected in zip(found, literal(i, j), strict=True):
                np.testing.assert_allclose(attacked[i, j].flatten(), expected, atol=1e-10)


# law


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_each_noise_vector_keeps_its_length(size):
    x, labels, targets, noise = setting(network())
    for attacked in attacks(network(), x, labels, targets, noise, size=size):
        assert not torch.allclose(attacked, noise, atol=1e-2)
        torch.testing.assert_close(norms(attacked), norms(noise))


def test_standardised_noise_keeps_its_mean_and_deviation():
    x, _, targets, noise = setting(network())
    attacked = standardised_attack(network(), x, targets, noise, epsilon=2.0, steps=3).flatten(2)
    torch.testing.assert_close(attacked.mean(2), noise.flatten(2).mean(2), rtol=0, atol=1e-6)
    torch.testing.assert_close(attacked.std(2), noise.flatten(2).std(2))


def test_the_loss_rises_with_the_size_of_the_attack():
    model = network(scale=3.0)
    x, labels, targets, noise = setting(model, images=20)
    small, large = (attacks(model, x, labels, targets, noise, size=s) for s in (0.1, 0.5))
    before = copies_loss(model, x, labels, noise).mean()
    for few, many in zip(small, large, strict=True):
        assert copies_loss(model, x, labels, few).mean() > before + 1e-2
        assert (
            copies_loss(model, x, labels, many).mean() > copies_loss(model, x, labels, few).mean()
        )


def test_a_copy_that_deceives_is_left_where_it_did_so_first():
    model = network(scale=3.0)
    x, labels, _, noise = setting(model, images=20, sigma=0.5)
    paths = [
        sphere_attack(model, x, labels, noise, step_size=0.2, steps=steps) for steps in range(6)
    ]
    with torch.no_grad():
        wrong = [
            (model((x[:, None] + eta).flatten(0, 1)).argmax(1).view(20, 5) != labels[:, None])
            for eta in paths
        ]
    assert wrong[0].any() and (wrong[5] & ~wrong[0]).any() and not wrong[5].all()
    for step in range(5):
        assert torch.equal(paths[5][wrong[step]], paths[step][wrong[step]])
        moved = (paths[step + 1] - paths[step]).flatten(2).norm(dim=2)
        assert (moved[~wrong[step]] > 1e-3).all()


def test_the_standardised_attack_ends_near_the_ball():
    """Only the last scaling may leave it."""
    x, _, targets, noise = setting(network())
    for epsilon in (0.05, 0.2):
        attacked = standardised_attack(network(), x, targets, noise, epsilon=epsilon, steps=8)
        assert (norms(attacked - noise) < 1.5 * epsilon).all()
        assert (norms(attacked - noise) > 0.3 * epsilon).all()


def test_a_step_size_of_its_own_is_used():
    x, _, targets, noise = setting(network())
    settings = {"epsilon": 1.0, "steps": 4}
    own, same, shorter = (
        standardised_attack(network(), x, targets, noise, step_size=s, **settings)
        for s in (None, 0.5, 0.01)
    )
    assert torch.equal(own, same)
    assert (norms(shorter - noise) < 0.05).all() and (norms(own - noise) > 0.05).all()


def test_steps_of_no_length_lead_nowhere():
    """0 is a length like others, and not the default."""
    model = network()
    x, labels, targets, noise = setting(model)
    sphere = sphere_attack(model, x, labels, noise, step_size=0.0, steps=3)
    standard = standardised_attack(model, x, targets, noise, epsilon=1.0, steps=3, step_size=0.0)
    for found in (sphere, standard):
        torch.testing.assert_close(found, noise, rtol=0, atol=1e-5)


def test_no_step_leaves_the_noise():
    x, labels, targets, noise = setting(network())
    for attacked in attacks(network(), x, labels, targets, noise, steps=0):
        assert torch.equal(attacked, noise)


def test_each_copy_is_attacked_by_itself():
    model = linear()
    x, labels, targets, noise = setting(model, dtype=torch.float64)
    together = attacks(model, x, labels, targets, noise)
    for i in range(noise.shape[0]):
        for j in range(noise.shape[1]):
            one = slice(i, i + 1)
            alone = attacks(model, x[one], labels[one], targets[one], noise[one, j : j + 1])
            for all_of_them, single in zip(together, alone, strict=True):
                torch.testing.assert_close(all_of_them[i, j], single[0, 0])


@pytest.mark.parametrize("build", [tiny, tiny_with_batch_norm, tiny_with_dropout])
@pytest.mark.parametrize("context", [nullcontext, torch.no_grad])
def test_the_network_is_left_as_it_was(build, context):
    model = build(3, 1)
    model[0].eval()  # a part with a mode of its own
    modes = [part.training for part in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x, noise = torch.rand(3, 1, 8, 8), torch.randn(3, 2, 1, 8, 8)
    labels, targets = torch.arange(3), torch.full((3, 3), 1 / 3)
    with context():
        first, again = (attacks(model, x, labels, targets, noise) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other) and not one.requires_grad
    assert [part.training for part in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_no_gradient_of_the_weights_is_asked_for():
    model, asked = tiny(3, 1), []
    model.register_forward_hook(
        lambda *_: asked.append(any(p.requires_grad for p in model.parameters()))
    )
    x, noise = torch.rand(3, 1, 8, 8), torch.randn(3, 2, 1, 8, 8)
    attacks(model, x, torch.arange(3), torch.full((3, 3), 1 / 3), noise)
    assert asked and not any(asked)
    assert all(p.requires_grad for p in model.parameters())


def test_a_gradient_of_zero_moves_nothing():
    constant = network()
    nn.init.zeros_(constant[-1].weight)
    x, labels, targets, noise = setting(constant)
    for attacked in attacks(constant, x, labels, targets, noise):
        torch.testing.assert_close(attacked, noise)


@pytest.mark.parametrize("scale", [1e3, 1e30, 1e38])
def test_a_saturated_softmax_gives_numbers(scale):
    model = network(scale=scale)
    x, labels, targets, noise = setting(model)
    for attacked in attacks(model, x, labels, targets, noise):
        assert attacked.isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 0.0])
@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_vector_of_equal_entries_gives_numbers(value, scale):
    """It has no deviation to divide by, before a step or, without a gradient, after it."""
    x, labels, targets, noise = setting(network())
    noise = torch.full_like(noise, value)
    for attacked in attacks(network(scale=scale), x, labels, targets, noise):
        assert attacked.isfinite().all()
        torch.testing.assert_close(norms(attacked), norms(noise))


# refusal


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf])
def test_a_size_out_of_range_is_told(value):
    x, labels, targets, noise = setting(network())
    with pytest.raises(Mistake) as mistake:
        sphere_attack(network(), x, labels, noise, step_size=value, steps=1)
    assert str(mistake.value) == f"step_size must be at least 0, got {value}"
    with pytest.raises(Mistake) as mistake:
        standardised_attack(network(), x, targets, noise, epsilon=value, steps=1)
    assert str(mistake.value) == f"epsilon must be at least 0, got {value}"
    with pytest.raises(Mistake, match="step_size must be at least 0"):
        standardised_attack(network(), x, targets, noise, epsilon=1.0, step_size=value, steps=1)


def test_noise_of_another_shape_and_negative_steps_are_told():
    x, labels, targets, noise = setting(network())
    with pytest.raises(Mistake, match="noise must have the shape"):
        sphere_attack(network(), x, labels, noise[:, 0], step_size=1.0, steps=1)
    with pytest.raises(Mistake, match="steps must be at least 0, got -1"):
        standardised_attack(network(), x, targets, noise, epsilon=1.0, steps=-1)
