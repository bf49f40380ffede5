import math

import pytest
import torch
from torch import nn

from macer.training.optimizers import Muon, orthogonal


def matrices(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def optimizer_of(parameters, *, lr=0.1, **changes):
    settings = {"ratio": 0.3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0} | changes
    made = Muon(parameters, lr=torch.tensor(lr), **settings)
    made.found_inf = torch.tensor(0.0)
    for p in parameters:
        made.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return made


@pytest.mark.parametrize("shape", [(3, 4, 9), (2, 9, 4), (1, 6, 6), (1, 1, 5)])
def test_singular_values_come_near_1_and_directions_stay(shape):
    u = matrices(*shape)
    found = torch.stack(orthogonal(list(u)))
    assert found.shape == u.shape and found.dtype == u.dtype
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6 and values.max() < 1.3
    left, _, right = torch.linalg.svd(u, full_matrices=False)
    inside = left.mT @ found @ right.mT  # diagonal if the singular vectors are u's
    off = inside - torch.diag_embed(torch.diagonal(inside, dim1=1, dim2=2))
    assert off.abs().max() < 1e-9 and torch.diagonal(inside, dim1=1, dim2=2).min() > 0.6


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_a_gradient_does_not_matter(scale):
    u = matrices(2, 4, 9)
    torch.testing.assert_close(orthogonal(list(scale * u)), orthogonal(list(u)))


def test_of_nothing_comes_nothing():
    [found] = orthogonal([torch.zeros(3, 4)])
    assert torch.equal(found, torch.zeros(3, 4))


def test_matrices_of_one_batch_do_not_change_each_other():
    shapes = [(5, 9), (8, 30), (30, 7), (6, 6), (1, 4), (17, 20)]
    some = [matrices(*s, seed=i) for i, s in enumerate(shapes)]
    for m, together in zip(some, orthogonal(some), strict=True):
        [alone] = orthogonal([m])
        assert together.shape == m.shape
        torch.testing.assert_close(together, alone)


def test_filters_of_a_wide_network_are_few_batches(monkeypatch):
    products = []
    plain = torch.baddbmm
    monkeypatch.setattr(
        torch, "baddbmm", lambda x, *a, **k: products.append(x) or plain(x, *a, **k)
    )
    stem, shortcut = (128, 48), (256, 128)
    orthogonal([torch.ones(*s) for s in (stem, (128, 1152), (256, 1152), (256, 2304), shortcut)])
    assert [len(x) for x in products] == [1] * 10 + [4] * 10  # the stem, and all others


def hand_step(w, g, m, *, lr, ratio, momentum, nesterov, weight_decay):
    """One tensor, one step, as the docstring has it."""
    filters = w.ndim == 4
    g = g if filters else g + weight_decay * w
    m = momentum * m + g
    u = g + momentum * m if nesterov else m
    if not filters:
        return w - lr * u, m
    rows = torch.stack([f.permute(1, 2, 0).flatten() for f in u])
    x = rows / math.sqrt(float((rows**2).sum()))
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x
    x = x.T if tall else x
    o = torch.stack([r.view(*w.shape[2:], w.shape[1]).permute(2, 0, 1) for r in x])
    moved = w - lr * ratio * w.norm() * o / o.norm()
    return moved * w.norm() / moved.norm(), m


@pytest.mark.parametrize("nesterov", [True, False])
def test_steps_are_those_of_the_docstring_by_hand(nesterov):
    shapes = [(4, 2, 3, 3), (4, 2, 3, 3), (20, 1, 2, 2), (5, 7), (4,)]
    parameters = [nn.Parameter(matrices(*s, seed=i)) for i, s in enumerate(shapes)]
    parameters[1].data = parameters[1].data.contiguous(memory_format=torch.channels_last)
    settings = {"lr": 0.2, "ratio": 0.4, "momentum": 0.7, "nesterov": nesterov}
    settings["weight_decay"] = 0.05
    optimizer = optimizer_of(parameters, **settings)
    expected = [p.detach().clone() for p in parameters]
    momenta = [torch.zeros_like(p) for p in expected]
    for step in range(3):
        for i, p in enumerate(parameters):
            p.grad = matrices(*p.shape, seed=10 * step + i)
        optimizer.step()
        for i, p in enumerate(parameters):
            expected[i], momenta[i] = hand_step(expected[i], p.grad, momenta[i], **settings)
    for p, known, m in zip(parameters, expected, momenta, strict=True):
        torch.testing.assert_close(p.detach(), known, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(optimizer.state[p]["momentum_buffer"], m)


def test_a_step_moves_filters_by_the_share_of_their_norm():
    p = nn.Parameter(100 * matrices(8, 3, 3, 3))
    before, p.grad = p.detach().clone(), 1e-5 * matrices(8, 3, 3, 3, seed=1)
    optimizer_of([p], lr=0.1, ratio=0.3).step()
    assert float((p.detach() - before).norm() / before.norm()) == pytest.approx(0.03, rel=0.01)


@pytest.mark.medium
def test_filters_keep_their_norm_over_a_long_training():
    p = nn.Parameter(matrices(8, 3, 3, 3).float())
    before, optimizer = float(p.detach().norm()), optimizer_of([p], lr=0.1, ratio=0.6)
    for step in range(3000):  # left to grow, they overflow
        p.grad = matrices(8, 3, 3, 3, seed=step).float()
        optimizer.step()
    assert float(p.detach().norm()) == pytest.approx(before, rel=1e-4)


def test_filters_of_nothing_stay_so():
    p = nn.Parameter(torch.zeros(2, 2, 1, 1))
    p.grad = torch.ones_like(p)
    optimizer_of([p]).step()
    assert torch.equal(p.detach(), torch.zeros(2, 2, 1, 1))


def test_each_group_moves_as_it_would_alone_at_its_own_rate():
    shapes = [(8, 3, 3, 3), (4, 8, 3, 3), (4,), (5, 7)]
    together = [nn.Parameter(matrices(*shape, seed=i)) for i, shape in enumerate(shapes)]
    apart = [nn.Parameter(p.detach().clone()) for p in together]
    settings = {"ratio": 0.3, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}
    groups = [{"params": together[::2]}, {"params": together[1::2], "lr": torch.tensor(0.4)}]
    optimizer = Muon(groups, lr=torch.tensor(0.1), **settings)
    optimizer.found_inf = torch.tensor(0.0)
    others = [optimizer_of(apart[::2], lr=0.1, weight_decay=0.1)]
    others += [optimizer_of(apart[1::2], lr=0.4, weight_decay=0.1)]
    for p, twin in zip(together, apart, strict=True):
        optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
        p.grad = matrices(*p.shape, seed=9)
        twin.grad = p.grad.clone()
    for each in (optimizer, *others):
        each.step()
    assert all(torch.equal(p, twin) for p, twin in zip(together, apart, strict=True))


def test_the_learning_rate_is_read_at_every_step():
    p = nn.Parameter(matrices(8, 3, 3, 3))
    optimizer = optimizer_of([p])
    optimizer.param_groups[0]["lr"].fill_(0.0)
    before, p.grad = p.detach().clone(), torch.ones_like(p)
    optimizer.step()
    assert torch.equal(p, before)


def test_a_parameter_without_a_gradient_is_left_alone():
    p, other = nn.Parameter(torch.ones(2, 2, 1, 1)), nn.Parameter(torch.ones(2))
    optimizer = optimizer_of([p, other], weight_decay=0.1)
    other.grad = torch.ones(2)
    optimizer.step()
    assert (p == 1).all() and (other < 1).all()
