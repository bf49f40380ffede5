"""The GPU's kernels on a CPU, through Triton's interpreter: `make kernels`.

In float32, since the interpreter's bfloat16 products are wrong; tests/gpu has them on a GPU.
"""

import os

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from macer.kernels.kinds import PAIRS
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.exact_noise import levels
from macer.smoothing.streams import Purpose

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter"
)


def last(*shape):
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_exact_noise_is_bit_for_bit_the_cpus(sigma):
    from macer.kernels.noise import GpuNoise

    images = torch.randint(0, 256, (3, 1, 3, 5), dtype=torch.uint8)
    numbers = [7, 2**55 + 3, 0]
    copies = NoisyCopies(
        images, numbers, sigma=sigma, seed=11, purpose=Purpose.ESTIMATION, rows=2 * CHUNK,
        dtype=torch.float32,
    )  # fmt: skip
    chunks = Chunks(np.array([1, 2]), np.array([5, 0]), np.full(2, CHUNK))
    expected, decided = copies.draw(chunks)
    noise = GpuNoise(
        copies.pixels, 11, int(Purpose.ESTIMATION), levels(sigma), rows=CHUNK
    )  # fmt: skip
    found = torch.zeros(copies.shape)
    where = np.stack((chunks.slots, chunks.numbers, np.array(numbers)[chunks.slots]))
    flags = noise.fill(found, torch.from_numpy(where), sigma)
    assert torch.equal(found.permute(0, 3, 1, 2), expected)
    assert torch.equal(flags == 0, decided)


def test_ordinary_noise_is_normal():
    from macer.kernels.noise import GpuNoise

    pixels = torch.full((1, 5, 5, 4), 0.5)
    found = torch.zeros(CHUNK, 5, 5, 4)
    noise = GpuNoise(pixels, 11, 1, None, rows=CHUNK)
    noise.fill(found, torch.tensor([[0], [3], [9]]), 0.25)
    z = (found - 0.5).double() / 0.25
    assert z.mean().abs() < 0.04 and (z.std() - 1).abs() < 0.03 and z.abs().max() > 3


def same_as_torch(ours, norm, shape, with_shortcut, relu):
    """Activations and their gradients are those of ReLU(norm(x) + shortcut)."""
    inputs = [last(*shape) * 2 + 1, *([last(*shape)] if with_shortcut else [])]
    inputs, twins = ([t.clone().requires_grad_() for t in inputs] for _ in range(2))
    y = ours(inputs[0], inputs[1] if with_shortcut else None)
    expected = norm(twins[0]) + (twins[1] if with_shortcut else 0)
    expected = expected.relu() if relu else expected
    dy = torch.randn(shape)
    y.backward(dy)
    expected.backward(dy)
    close(y, expected)
    for a, b in zip(inputs, twins, strict=True):
        close(a.grad, b.grad)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", [(3, 16, 5, 4), (2, 24, 3, 3), (9, 128, 4, 4)])
def test_the_norm_kernels_are_batch_norm(shape, with_shortcut, relu):
    from macer.kernels.batchnorm import NormReLU

    torch.manual_seed(0)
    norms = [nn.BatchNorm2d(shape[1]) for _ in range(2)]
    for norm in norms:
        torch.manual_seed(1)
        nn.init.uniform_(norm.weight, -1, 2)
        nn.init.normal_(norm.bias)

    def ours(x, shortcut):
        return NormReLU.apply(x, shortcut, norms[0].weight, norms[0].bias, norms[0], relu)

    same_as_torch(ours, norms[1], shape, with_shortcut, relu)
    for a, b in zip(norms[0].parameters(), norms[1].parameters(), strict=True):
        close(a.grad, b.grad)
    close(norms[0].running_mean, norms[1].running_mean)
    close(norms[0].running_var, norms[1].running_var)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", [(3, 16, 5, 4), (2, 24, 3, 3), (9, 128, 4, 4)])
def test_the_fixed_norm_kernels_are_batch_norm_in_eval_mode(shape, with_shortcut, relu):
    from macer.kernels.batchnorm import FixedNormReLU

    torch.manual_seed(0)
    norm = nn.BatchNorm2d(shape[1]).eval().requires_grad_(False)
    nn.init.uniform_(norm.weight, -1, 2)
    nn.init.normal_(norm.bias)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 3)

    def ours(x, shortcut):
        return FixedNormReLU.apply(x, shortcut, norm, relu)

    same_as_torch(ours, norm, shape, with_shortcut, relu)


def test_nan_passes_through_the_norm():
    from macer.kernels.batchnorm import NormReLU

    x = last(4, 16, 2, 2)
    x[3, 5, 1, 1] = torch.nan
    norm = nn.BatchNorm2d(16)
    y = NormReLU.apply(x, None, norm.weight, norm.bias, norm, True)
    assert y[:, 5].isnan().all() and y[:, 4].isfinite().all()


@pytest.mark.parametrize("shape", [(2, 16, 6, 8), (1, 32, 4, 4)])
def test_the_narrow_kernels_are_the_convolution(monkeypatch, shape):
    from macer.kernels import narrow

    monkeypatch.setattr(narrow, "TYPE", torch.float32)
    x, dy = last(*shape), last(*shape)
    weight = last(shape[1], shape[1], 3, 3)
    ours, theirs = ([t.clone().requires_grad_() for t in (x, weight)] for _ in range(2))
    y, expected = narrow.NarrowConvolution.apply(*ours), F.conv2d(*theirs, padding=1)
    y.backward(dy)
    expected.backward(dy)
    close(y, expected)
    for a, b in zip(ours, theirs, strict=True):
        close(a.grad, b.grad)


@pytest.mark.parametrize(
    ("channels", "size", "padding", "pool"), [(3, 3, 1, 1), (1, 5, 0, 2), (2, 4, 1, 2)]
)
def test_a_stem_is_the_convolution_in_training_and_certification(
    monkeypatch, channels, size, padding, pool
):
    from macer.kernels import narrow
    from macer.kernels.convolution import stem_relu, stem_weight

    monkeypatch.setattr(narrow, "TYPE", torch.float32)
    x, weight, bias = last(3, channels, 9, 7), last(16, channels, size, size), torch.randn(16)
    expected = F.conv2d(x, weight, padding=padding)
    close(narrow.stem(x, weight, padding=padding), expected)
    expected = F.max_pool2d((expected + bias[:, None, None]).relu(), pool)
    settings = {"outputs": 16, "size": size, "padding": padding, "pool": pool}
    close(stem_relu(x, *stem_weight(weight, bias), **settings), expected)


def test_the_kernel_for_pairs_has_tiles_for_all_that_are_sent_to_it():
    from macer.kernels.convolution import TILES

    assert tuple(TILES) == PAIRS


@pytest.mark.parametrize("with_shortcut", [True, False])
def test_a_convolution_of_pairs_is_the_convolution(with_shortcut):
    from macer.kernels.convolution import pairs_relu, pairs_weight

    x, shortcut, weight, bias = (
        last(2, 16, 5, 6),
        last(2, 16, 5, 6),
        last(16, 16, 3, 3),
        last(1, 16, 1, 1),
    )
    found = pairs_relu(
        x, pairs_weight(weight), bias.flatten(), shortcut if with_shortcut else None
    )  # fmt: skip
    close(found, (F.conv2d(x, weight, padding=1) + bias + shortcut * with_shortcut).relu())


@pytest.mark.parametrize("shape", [(7, 56, 8, 8), (2, 8, 4, 6)])
def test_the_pooling_kernels_are_pooling_and_relu(shape):
    from macer.kernels.pooling import HalvedReLU, halved

    x = (last(*shape) * 2).round()  # many are equal: the first of the largest gets the gradient
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    y, expected = HalvedReLU.apply(ours), F.relu(F.max_pool2d(theirs, 2))
    dy = torch.randn_like(y)
    y.backward(dy)
    expected.backward(dy)
    assert torch.equal(y, expected) and torch.equal(ours.grad, theirs.grad)
    assert torch.equal(halved(x), F.max_pool2d(x, 2))
