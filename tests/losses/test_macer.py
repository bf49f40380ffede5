import math
import re

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import batch_of, losses_of
from tiny_models import tiny_recipe

from macer.losses import macer_loss
from macer.losses.gaussian import gaussian_losses
from macer.losses.macer import macer_losses
from macer.system.errors import Mistake

PAPER = {"sigma": 0.25, "lam": 12.0, "gamma": 8.0, "beta": 16.0}


def random_batch(seed, images=32, k=16, classes=10, scale=0.3, dtype=torch.float64):
    """Logits near the border of G: some images in it, some out, some beyond the hinge."""
    random = np.random.default_rng(seed)
    labels = torch.from_numpy(random.integers(classes, size=images))
    centre = random.normal(size=(images, 1, classes)) * scale
    logits = torch.from_numpy(centre + random.normal(size=(images, k, classes)) * scale)
    logits[torch.arange(images), :, labels] += 2 * scale
    return logits.to(dtype), labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gamma", [2.0, 8.0, 12.0])
@pytest.mark.parametrize("beta", [1.0, 16.0])
def test_macer_loss_is_algorithm_1(seed, gamma, beta):
    logits, labels = random_batch(seed)
    settings = {"sigma": 0.5, "lam": 4.0, "gamma": gamma, "beta": beta}
    expected = reference.macer_objective(logits.numpy(), labels.numpy(), **settings)
    assert macer_loss(logits, labels, **settings).item() == pytest.approx(expected, rel=1e-6)


def test_float32_agrees_with_float64():
    logits, labels = random_batch(0)
    exact = macer_loss(logits, labels, **PAPER).item()
    assert macer_loss(logits.float(), labels, **PAPER).item() == pytest.approx(exact, rel=1e-4)


def test_gaussian_training_is_macer_with_k_1_and_lam_0():
    logits, labels = random_batch(0, k=1)
    loss = macer_loss(logits, labels, **PAPER | {"lam": 0.0})
    assert loss.item() == pytest.approx(F.cross_entropy(logits[:, 0], labels).item(), rel=1e-12)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("gamma", [2.0, 8.0, 16.0])
def test_gradients_pass_gradcheck(k, gamma):
    logits, labels = random_batch(1, images=6, k=k, classes=4, scale=0.1)
    arguments = PAPER | {"gamma": gamma}
    assert torch.autograd.gradcheck(
        lambda u: macer_loss(u, labels, **arguments), logits.requires_grad_()
    )


def test_inverse_temperature_does_not_reach_the_cross_entropy():
    logits, labels = random_batch(2)
    losses = [macer_loss(logits, labels, **PAPER | {"lam": 0.0, "beta": b}) for b in (1.0, 64.0)]
    assert losses[0] == losses[1]


def test_the_copies_cross_entropies_take_the_place_of_their_means_and_nothing_else_changes():
    logits, labels = random_batch(4, scale=1.0)
    losses = macer_losses(logits, labels, **PAPER, cross_entropy="copies")
    robustness = macer_losses(logits, labels, **PAPER) - macer_losses(
        logits, labels, **PAPER | {"lam": 0.0}
    )
    assert (robustness > 0).any()
    torch.testing.assert_close(losses, gaussian_losses(logits, labels) + robustness)


@pytest.mark.parametrize("loss", ["macer", "macer-consistency", "macer-hard-noise"])
def test_the_recipe_chooses_the_cross_entropy(loss):
    """λ = 0: the difference of the two objectives is that of their cross-entropies."""
    no_steps = {"steps": 0} if loss == "macer-hard-noise" else {}
    smoothed, copies = (
        batch_of(tiny_recipe(k=4, loss=loss, lam=0.0, cross_entropy=name, **no_steps))
        for name in ("smoothed", "copies")
    )
    logits, labels = smoothed.logits(), smoothed.labels
    expected = gaussian_losses(logits, labels) - macer_losses(
        logits, labels, sigma=0.5, lam=0.0, gamma=8.0, beta=16.0
    )
    assert (expected > 0).all()
    torch.testing.assert_close(losses_of(copies) - losses_of(smoothed), expected)


def test_an_image_outside_G_has_no_robustness_term():
    logits, labels = random_batch(3)
    wrong = (logits.mean(1).argmin(1)).long()
    loss = macer_loss(logits, wrong, **PAPER | {"beta": 1.0})
    plain = macer_loss(logits, wrong, **PAPER | {"lam": 0.0})
    assert loss == plain
    assert macer_loss(logits, labels, **PAPER) > macer_loss(logits, labels, **PAPER | {"lam": 0.0})


def test_an_image_beyond_the_hinge_has_no_robustness_gradient():
    logits = torch.zeros(1, 4, 3, dtype=torch.float64)
    logits[..., 0] = 5.0
    labels = torch.tensor([0])
    assert macer_loss(logits, labels, **PAPER) == macer_loss(logits, labels, **PAPER | {"lam": 0.0})


@pytest.mark.parametrize("gamma", [2.0, 8.0, 16.0])
@pytest.mark.parametrize("k", [1, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "extreme", ["huge", "equal", "one-hot", "nobody correct", "everybody correct"]
)
def test_loss_and_gradient_are_finite_on_extreme_logits(extreme, dtype, k, gamma):
    labels = torch.arange(10)
    one_hot = F.one_hot(labels, 10).float()[:, None].expand(10, k, 10)
    logits = {
        "huge": 1e4 * torch.randn(10, k, 10, generator=torch.Generator().manual_seed(0)).sign(),
        "equal": torch.full((10, k, 10), 7.0),
        "one-hot": one_hot,
        "nobody correct": -1e4 * one_hot,
        "everybody correct": 1e4 * one_hot,
    }[extreme]
    logits = logits.to(dtype, copy=True).requires_grad_()
    loss = macer_loss(logits, labels, **PAPER | {"gamma": gamma})
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


@pytest.mark.medium
@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=12, max_size=12), st.floats(2, 16))
def test_loss_and_gradient_are_finite_on_any_logits(values, gamma):
    logits = torch.tensor(values).reshape(2, 2, 3).requires_grad_()
    loss = macer_loss(logits, torch.tensor([0, 2]), **PAPER | {"gamma": gamma})
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


def test_the_hinge_is_accurate_where_a_probability_rounds_to_one():
    """In float32 1 − 10⁻⁹ is 1, whose quantile is infinite; a hinge that far is still a hinge."""
    logits = torch.tensor([[[0.0, -20.7]] * 4, [[0.0, -12.0]] * 4])
    labels, settings_ = torch.tensor([0, 0]), PAPER | {"gamma": 16.0, "beta": 1.0}
    u = logits.clone().requires_grad_()
    found = macer_losses(u, labels, **settings_)
    expected = macer_losses(logits.double(), labels, **settings_)
    torch.testing.assert_close(found.detach().double(), expected, rtol=1e-4, atol=1e-6)
    [gradient] = torch.autograd.grad(found.sum(), u)
    assert gradient.isfinite().all() and (expected > 0).all()


def test_what_is_no_tensor_is_refused():
    logits, labels = torch.zeros(2, 1, 3), torch.tensor([0, 1])
    rest = {"sigma": 0.5, "lam": 1.0, "gamma": 8.0, "beta": 1.0}
    for convert in (np.asarray, lambda values: values.tolist()):
        with pytest.raises(Mistake, match=r"^logits must be a tensor, got .*; convert it with "):
            macer_loss(convert(logits), labels, **rest)
        with pytest.raises(Mistake, match=r"^labels must be a tensor, got .*; convert it with "):
            macer_loss(logits, convert(labels), **rest)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(2, 3)}, "logits must be floats of the shape (images, k, classes), "
         "got float32 of the shape (2, 3); of one copy per image they are logits[:, None]"),
        ({"logits": torch.zeros(2, 1, 3, dtype=torch.int64)}, "logits must be floats of the shape "
         "(images, k, classes), got int64 of the shape (2, 1, 3); of one copy per image they are"),
        ({"labels": torch.zeros(2)}, "labels must be int64, one per image (2), got float32 of the "
         "shape (2,); convert them with labels.long()"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "labels must be int64, one per image (2), "
         "got int64 of the shape (3,)"),
        ({"labels": torch.tensor([0, 3])}, "labels must be from 0 to 2, got 3"),
        ({"labels": torch.tensor([-1, 0])}, "labels must be from 0 to 2, got -1"),
        ({"sigma": -0.5}, "sigma must be > 0, got -0.5"),
        ({"sigma": math.nan}, "sigma must be > 0, got nan"),
        ({"sigma": "0.5"}, "sigma must be a number, got '0.5'"),
        ({"beta": None}, "beta must be a number, got None"),
        ({"lam": -1.0}, "lam must be at least 0, got -1.0"),
        ({"gamma": 0.0}, "gamma must be > 0, got 0.0"),
        ({"beta": 0}, "beta must be > 0, got 0"),
    ],
)  # fmt: skip
def test_what_has_another_shape_type_or_range_is_refused(changes, message):
    given = {
        "logits": torch.zeros(2, 1, 3), "labels": torch.tensor([0, 1]), "sigma": 0.5, "lam": 1.0,
        "gamma": 8.0, "beta": 1.0,
    } | changes  # fmt: skip
    with pytest.raises(Mistake, match=f"^{re.escape(message)}"):
        macer_loss(given.pop("logits"), given.pop("labels"), **given)
