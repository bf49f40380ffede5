import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import softmax
from tiny_models import tiny, tiny_with_batch_norm, tiny_with_dropout
from torch import nn

from macer.attacks.images import ddn, log_z_bar, pgd, pgd_on_pixels, smoothed_loss
from macer.system.errors import Mistake

ATTACKS = [pgd, ddn]
SHAPE = (1, 4, 4)


def draws(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pictures(count, *, shape=SHAPE, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand((count, *shape), generator=generator, dtype=dtype)


def linear(classes=3, *, seed=0, scale=1.0, dtype=torch.float64):
    """Logits W v + b of 4×4 images."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, classes, dtype=dtype))
    with torch.no_grad():
        model[1].weight.copy_(scale * draws(classes, 16, seed=seed))
        model[1].bias.copy_(scale * draws(classes, seed=seed + 1))
    return model


def network(classes=3, *, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, classes))


class HalfSpace(nn.Module):
    """Class 0 where w·v > c, at distance (w·x − c) / ‖w‖ from its border."""

    def __init__(self, c=0.0, sharpness=4.0):
        super().__init__()
        self.w, self.c, self.sharpness = draws(16, seed=3), c, sharpness

    def forward(self, v):
        margin = self.sharpness * self.distance(v)
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)

    def distance(self, v):
        return (v.flatten(1) @ self.w - self.c) / self.w.norm()


def loss_at(model, images, labels, noise):
    return smoothed_loss(log_z_bar(model, images, noise), labels)


def distances(x, images):
    return (x.double() - images.double()).flatten(1).norm(dim=1)


# reference: one image at a time in NumPy float64, with the gradient of a linear network by hand


def literal_loss(W, b, x, y, etas):
    """J, its gradient, and the class of the softly smoothed classifier."""
    z = [softmax(W @ (x + eta) + b, 1.0) for eta in etas]
    z_bar = sum(z) / len(z)
    gradient = sum(z_j[y] * (W[y] - z_j @ W) for z_j in z)
    return -math.log(z_bar[y]), -gradient / (len(z) * z_bar[y]), int(np.argmax(z_bar))


def literal_pgd(W, b, x, y, etas, *, epsilon, steps):
    delta = np.zeros_like(x)
    for _ in range(steps):
        _, g, _ = literal_loss(W, b, x + delta, y, etas)
        delta = delta + 2 * epsilon / steps * g / np.linalg.norm(g)
        delta = np.clip(x + delta, 0, 1) - x
        delta = delta * min(1, epsilon / np.linalg.norm(delta))
    return x + delta


def literal_ddn(W, b, x, y, etas, *, epsilon, steps, gamma):
    delta, norm, found = np.zeros_like(x), 1.0, []
    for k in range(1, steps + 1):
        _, g, label = literal_loss(W, b, x + delta, y, etas)
        if label != y:
            found.append(delta)
        alpha = 0.01 + 0.99 * (1 + math.cos(math.pi * k / steps)) / 2
        delta = delta + alpha * g / np.linalg.norm(g)
        norm = (1 - gamma) * norm if label != y else (1 + gamma) * norm
        delta = np.clip(x + norm * delta / np.linalg.norm(delta), 0, 1) - x
    if literal_loss(W, b, x + delta, y, etas)[2] != y:
        found.append(delta)
    delta = min(found, key=np.linalg.norm) if found else np.zeros_like(x)
    return x + delta * min(1, epsilon / max(np.linalg.norm(delta), 1e-300))


@pytest.fixture
def setting():
    """Images, labels, noise and a linear network, for torch and for NumPy."""
    model = linear()
    images, noise = pictures(6, dtype=torch.float64), 0.5 * draws(6, 5, *SHAPE, dtype=torch.float64)
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
    W, b = (p.detach().numpy() for p in model[1].parameters())
    rows = [
        (W, b, x.flatten().numpy(), int(y), etas.flatten(1).numpy())
        for x, y, etas in zip(images, labels, noise, strict=True)
    ]
    return (model, images, labels, noise), rows


def test_the_loss_is_the_papers(setting):
    arguments, rows = setting
    expected = [literal_loss(*row)[0] for row in rows]
    np.testing.assert_allclose(loss_at(*arguments).detach(), expected, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.5])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_pgd_is_the_papers(setting, epsilon, steps):
    arguments, rows = setting
    expected = [literal_pgd(*row, epsilon=epsilon, steps=steps) for row in rows]
    found = pgd(*arguments, epsilon=epsilon, steps=steps).flatten(1)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # it is shortened by 2⁻²²


@pytest.mark.parametrize("gamma", [0.05, 0.3])
@pytest.mark.parametrize("steps", [1, 2, 15])
def test_ddn_is_the_papers(setting, gamma, steps):
    arguments, rows = setting
    settings = {"epsilon": 0.7, "steps": steps, "gamma": gamma}
    expected = [literal_ddn(*row, **settings) for row in rows]
    np.testing.assert_allclose(ddn(*arguments, **settings).flatten(1), expected, atol=1e-6)
    if steps == 15:
        assert (distances(torch.tensor(np.array(expected)), arguments[1].flatten(1)) > 0).any()


# law


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("clamp", [True, False])
@given(
    epsilon=st.floats(1e-9, 6.0),
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 4),
)
@settings(max_examples=25, deadline=None)
def test_what_is_found_is_in_the_ball_and_in_the_box(attack, clamp, epsilon, seed, steps):
    images = pictures(4, seed=seed).round(decimals=1)  # some pixels at 0 and 1
    noise = 0.5 * draws(4, 2, *SHAPE, seed=seed)
    labels = torch.arange(4) % 3
    x = attack(network(), images, labels, noise, epsilon=epsilon, steps=steps, clamp=clamp)
    assert x.dtype == images.dtype and not x.requires_grad
    assert (distances(x, images) <= epsilon).all()
    assert not clamp or (x.min() >= 0 and x.max() <= 1)


def test_8_bit_images_stay_8_bit_images_within_the_ball_and_use_most_of_it():
    pixels = (255 * pictures(3, shape=(1, 28, 28))).to(torch.uint8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 3))
    epsilon, noise = torch.tensor([0.3, 1.0, 2.0]), 0.1 * draws(3, 4, 1, 28, 28)
    x = pgd_on_pixels(model, pixels, torch.tensor([0, 1, 2]), noise, epsilon=epsilon, steps=3)
    assert x.dtype == torch.uint8 and x.shape == pixels.shape
    shares = distances(x.double() / 255, pixels.double() / 255) / epsilon
    assert (shares <= 1).all() and (shares > 0.9).all()


def test_rounding_does_not_take_a_large_image_out_of_its_ball():
    """Every pixel of 3×64×64 is rounded, mostly by more than its share of the last place of ε."""
    images = 0.5 + pictures(8, shape=(3, 64, 64)) / 2
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2))
    noise = 0.5 * draws(8, 2, 3, 64, 64)
    for epsilon in (1e-6, 1e-3, 0.1, 1 / 3):
        x = pgd(model, images, torch.zeros(8, dtype=torch.int64), noise, epsilon=epsilon, steps=3)
        assert (distances(x, images) <= epsilon).all()
        if epsilon >= 1e-3:
            assert (distances(x, images) >= epsilon * 0.99).all()


def test_pgd_uses_the_whole_ball_unless_it_is_clamped():
    images, noise = pictures(5), 0.5 * draws(5, 4, *SHAPE)
    labels = torch.arange(5) % 3
    x = pgd(network(), images, labels, noise, epsilon=0.75, steps=8, clamp=False)
    assert distances(x, images) == pytest.approx(torch.full((5,), 0.75), rel=1e-5)
    assert x.min() < 0 or x.max() > 1


@pytest.mark.medium
def test_a_half_space_is_attacked_along_its_normal():
    model, images, noise = HalfSpace(c=-2.0), pictures(5), 0.5 * draws(5, 8, *SHAPE)
    labels = torch.zeros(5, dtype=torch.int64)
    x = pgd(model, images, labels, noise, epsilon=0.3, steps=4, clamp=False)
    expected = images - 0.3 * (model.w / model.w.norm()).view(SHAPE)
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_half_space_flips_just_beyond_its_distance(attack):
    model, images = HalfSpace(c=-3.0), 0.5 + pictures(5) / 100
    noise = 0.5 * draws(5, 1, *SHAPE)
    noise = torch.cat([noise, -noise], dim=1)  # symmetric: the soft label is the side of x′
    labels = torch.zeros(5, dtype=torch.int64)
    reach = model.distance(images).double()
    assert (reach > 0.2).all()
    for factor, flipped in ((0.999, False), (1.1, True)):
        x = attack(model, images, labels, noise, epsilon=factor * reach, steps=40, clamp=False)
        assert ((model.distance(x) < 0) == flipped).all()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_loss_rises_with_epsilon(attack):
    model, images, noise = network(), pictures(20), 0.25 * draws(20, 8, *SHAPE)
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
        losses = [
            loss_at(model, x, labels, noise)
            for x in (
                attack(model, images, labels, noise, epsilon=e, steps=30) for e in (0, 0.3, 1)
            )
        ]
    found = losses[2] > losses[0] + 1e-4  # DDN returns x where it finds nothing
    assert found.all() if attack is pgd else found.sum() >= 10
    assert (losses[0][found] < losses[1][found]).all() and (losses[1] <= losses[2] + 1e-6).all()


def test_more_steps_find_more():
    """Where the gradient turns, one step is not enough."""
    model, images, noise = network(seed=1), pictures(50), 0.25 * draws(50, 8, *SHAPE)
    for layer in (model[1], model[3]):
        layer.weight.data *= 4
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
        few, many = (
            loss_at(
                model, pgd(model, images, labels, noise, epsilon=1.0, steps=steps), labels, noise
            ).mean()
            for steps in (1, 20)
        )
    assert many > 1.05 * few


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("settings", [{"epsilon": 0.0, "steps": 5}, {"epsilon": 1.0, "steps": 0}])
def test_no_step_and_no_room_leave_the_images(attack, settings):
    images, noise = pictures(3), draws(3, 2, *SHAPE)
    labels = network()(images).argmax(dim=1)
    assert torch.equal(attack(network(), images, labels, 0 * noise, **settings), images)


@pytest.mark.parametrize("attack", ATTACKS)
def test_each_image_has_its_own_epsilon_and_is_attacked_by_itself(attack):
    model, images, labels = linear(), pictures(4, dtype=torch.float64), torch.arange(4) % 3
    noise = 0.5 * draws(4, 3, *SHAPE, dtype=torch.float64)
    epsilon = torch.tensor([0.1, 0.4, 0.0, 2.0])
    together = attack(model, images, labels, noise, epsilon=epsilon, steps=6)
    for i in range(4):
        one = slice(i, i + 1)
        alone = attack(
            model, images[one], labels[one], noise[one], epsilon=float(epsilon[i]), steps=6
        )
        torch.testing.assert_close(together[one], alone, rtol=0, atol=1e-9)


def test_the_noise_is_attacked_through():
    """The gradient is that at the noisy copies: other noise, another direction."""
    model, images = network(), pictures(3)
    labels = torch.arange(3)
    one, same, other = (
        pgd(model, images, labels, 2 * draws(3, 2, *SHAPE, seed=seed), epsilon=0.5, steps=3)
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same) and not torch.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("build", [tiny, tiny_with_batch_norm, tiny_with_dropout])
@pytest.mark.parametrize("context", [nullcontext, torch.no_grad])
def test_the_network_is_left_as_it_was(attack, build, context):
    model = build(3, 1)
    model[0].eval()  # a part with a mode of its own
    model[-1].weight.requires_grad_(False)
    for parameter in model[-1].parameters():
        parameter.grad = torch.ones_like(parameter)
    modes = [part.training for part in model.modules()]
    wanted = [p.requires_grad for p in model.parameters()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    images, noise = pictures(3, shape=(1, 8, 8)), draws(3, 2, 1, 8, 8)
    with context():
        x = attack(model, images, torch.arange(3), noise, epsilon=1.0, steps=3)
        again = attack(model, images, torch.arange(3), noise, epsilon=1.0, steps=3)
    assert torch.equal(x, again)  # in eval mode, without dropout and batch statistics
    assert [part.training for part in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wanted
    assert all((p.grad == 1).all() for p in model[-1].parameters())
    assert all(p.grad is None for part in model[:-1] for p in part.parameters())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_gradient_of_the_weights_is_computed(attack):
    asked = []

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(weight)
            return x @ weight

        @staticmethod
        def backward(ctx, dy):
            asked.append(ctx.needs_input_grad)
            (weight,) = ctx.saved_tensors
            return dy @ weight.T, None

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 3))

        def forward(self, x):
            return Product.apply(x.flatten(1), self.weight)

    attack(Layer(), pictures(3), torch.arange(3), draws(3, 2, *SHAPE), epsilon=1.0, steps=2)
    assert asked and all(needs == (True, False) for needs in asked)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_gradient_of_zero_moves_nothing(attack):
    constant = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    nn.init.zeros_(constant[1].weight)
    images, labels = pictures(3), torch.zeros(3, dtype=torch.int64)
    constant[1].bias.data = torch.tensor([1.0, 0.0, 0.0])
    x = attack(constant, images, labels, draws(3, 2, *SHAPE), epsilon=1.0, steps=3)
    assert torch.equal(x, images)


@pytest.mark.parametrize("scale", [1e3, 1e30, 1e38])
def test_a_saturated_softmax_gives_numbers(scale):
    model = linear(scale=scale, dtype=torch.float32)
    images, labels = pictures(6), torch.arange(6) % 3
    for attack in ATTACKS:
        x = attack(model, images, labels, draws(6, 3, *SHAPE), epsilon=1.0, steps=4)
        assert x.isfinite().all()


def test_a_small_gradient_counts_in_full():
    """Squares of 10⁻³⁰ are 0 in float32."""
    model = HalfSpace(c=-2.0, sharpness=1e-30)
    images, noise = pictures(3), draws(3, 2, *SHAPE)
    labels = torch.zeros(3, dtype=torch.int64)
    x = pgd(model, images, labels, noise, epsilon=0.5, steps=2, clamp=False)
    assert distances(x, images) == pytest.approx(torch.full((3,), 0.5), rel=1e-5)
    assert (model.distance(x) < model.distance(images) - 0.49).all()


def test_the_loss_does_not_underflow():
    """Softmax outputs of e⁻⁵⁰⁰ are 0 in float32, their logarithm is not."""
    model = HalfSpace(c=0.0, sharpness=1000.0)
    images = -0.5 / model.w.norm() ** 2 * model.w.view(1, *SHAPE) * model.w.norm()
    images.requires_grad_()
    [loss] = loss_at(model, images, torch.tensor([0]), torch.zeros(1, 4, *SHAPE))
    assert loss.item() == pytest.approx(500.0, rel=1e-5)
    [gradient] = torch.autograd.grad(loss, images)
    assert gradient.norm().item() == pytest.approx(1000.0, rel=1e-5)


def test_a_start_is_brought_into_the_ball_and_used():
    model, images, noise = network(), pictures(4), 0.5 * draws(4, 2, *SHAPE)
    labels = torch.arange(4) % 3
    start = images + 3 * draws(4, *SHAPE, seed=9)
    x = pgd(model, images, labels, noise, epsilon=0.2, steps=0, start=start)
    assert (distances(x, images) <= 0.2).all() and not torch.equal(x, images)
    settings = {"epsilon": 0.2, "steps": 1, "step_size": 0.01}
    assert not torch.allclose(
        pgd(model, images, labels, noise, **settings),
        pgd(model, images, labels, noise, start=start, **settings),
        atol=1e-3,
    )


def test_a_step_has_the_length_it_is_given():
    model, images, noise = network(), 0.5 + 0 * pictures(4), 0.5 * draws(4, 2, *SHAPE)
    x = pgd(model, images, torch.arange(4) % 3, noise, epsilon=0.4, steps=1, step_size=0.03)
    assert distances(x, images) == pytest.approx(torch.full((4,), 0.03), rel=1e-4)


def test_steps_of_no_length_lead_nowhere():
    """0 is a length like others, and not the default."""
    model, images = network(), pictures(2)
    noise, labels = 0.25 * draws(2, 3, *SHAPE), torch.tensor([0, 1])
    found = pgd(model, images, labels, noise, epsilon=1.0, steps=3, step_size=0.0)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-6)


@pytest.mark.parametrize("clamp", [True, False])
def test_without_a_step_a_start_is_still_brought_into_the_ball(clamp):
    model, images = network(), pictures(2)
    noise, labels = 0.25 * draws(2, 3, *SHAPE), torch.tensor([0, 1])
    start = images + draws(2, *SHAPE, seed=9)
    found = pgd(model, images, labels, noise, epsilon=0.25, steps=0, start=start, clamp=clamp)
    assert (distances(found, images) <= 0.25).all() and (distances(found, images) > 0.05).all()
    if not clamp:
        direction = torch.nn.functional.normalize((start - images).flatten(1))
        torch.testing.assert_close((found - images).flatten(1), 0.25 * direction, rtol=0, atol=1e-5)


def test_ddn_leaves_an_image_that_deceives_already():
    model, images = network(), pictures(6)
    noise = torch.zeros(6, 1, *SHAPE)
    labels = (model(images).argmax(dim=1) + 1) % 3
    assert torch.equal(ddn(model, images, labels, noise, epsilon=1.0, steps=5), images)


# refusal


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"epsilon": -0.5}, "epsilon must be at least 0, got -0.5"),
        ({"epsilon": math.nan}, "epsilon must be at least 0, got nan"),
        (
            {"epsilon": torch.ones(2)},
            "epsilon must be a number or have the shape (3,), got (2,)",
        ),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        (
            {"noise": torch.zeros(3, 4, 4)},
            "noise must have the shape (3, m, 1, 4, 4), got (3, 4, 4)",
        ),
        (
            {"noise": torch.zeros(2, 5, *SHAPE)},
            "noise must have the shape (3, m, 1, 4, 4), got (2, 5, 1, 4, 4)",
        ),
        (
            {"noise": torch.zeros(3, 0, *SHAPE)},
            "noise must hold at least one vector for each image, got m = 0",
        ),
    ],
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mistake_is_told(attack, change, line):
    arguments = {"noise": torch.zeros(3, 2, *SHAPE), "epsilon": 1.0, "steps": 2} | change
    with pytest.raises(Mistake) as mistake:
        attack(network(), pictures(3), torch.arange(3), **arguments)
    assert str(mistake.value) == line


def test_a_step_size_and_a_gamma_out_of_range_are_told():
    images, labels, noise = pictures(3), torch.arange(3), torch.zeros(3, 2, *SHAPE)
    with pytest.raises(Mistake, match="step_size must be at least 0, got -1"):
        pgd(network(), images, labels, noise, epsilon=1.0, steps=1, step_size=-1.0)
    with pytest.raises(Mistake, match="gamma must be between 0 and 1, got 1"):
        ddn(network(), images, labels, noise, epsilon=1.0, steps=1, gamma=1.0)
