"""Batch normalisation by our kernels, run by Triton's interpreter, beside torch's."""

import pytest
import torch
from interpreted import assert_close, needs_interpreter, random_images, twins
from torch import nn

pytestmark = needs_interpreter


def random_norm(channels):
    """A norm with weights and averages that matter; the same at every call."""
    torch.manual_seed(1)
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, -1, 2)
    nn.init.normal_(norm.bias)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.1, 3)
    return norm


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("programs", [512, 2])  # with 2 each program adds up several tiles
@pytest.mark.parametrize("shape", [(3, 16, 5, 4), (2, 24, 3, 3), (13, 128, 4, 4)])
def test_the_norm_kernels_are_batch_norm(monkeypatch, shape, programs, with_shortcut, relu):
    from macer.kernels import batchnorm

    monkeypatch.setattr(batchnorm, "PROGRAMS", programs)
    norm, twin = random_norm(shape[1]), random_norm(shape[1])
    inputs, others = twins(
        random_images(*shape) * 2 + 1, *[random_images(*shape)] * with_shortcut
    )  # fmt: skip
    y = batchnorm.NormReLU.apply(
        inputs[0], inputs[1] if with_shortcut else None, norm.weight, norm.bias, norm, relu
    )
    expected = twin(others[0]) + (others[1] if with_shortcut else 0)
    expected = expected.relu() if relu else expected
    dy = torch.randn(shape)
    y.backward(dy)
    expected.backward(dy)
    assert_close(y, expected)
    for a, b in zip([*inputs, *norm.parameters()], [*others, *twin.parameters()], strict=True):
        assert_close(a.grad, b.grad)
    assert_close(norm.running_mean, twin.running_mean)
    assert_close(norm.running_var, twin.running_var)


def test_nan_passes_through_the_norm():
    from macer.kernels.batchnorm import NormReLU

    x = random_images(4, 16, 2, 2)
    x[3, 5, 1, 1] = torch.nan
    norm = nn.BatchNorm2d(16)
    y = NormReLU.apply(x, None, norm.weight, norm.bias, norm, True)
    assert y[:, 5].isnan().all() and y[:, 4].isfinite().all()


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", [(3, 16, 5, 4), (2, 24, 3, 3), (9, 128, 4, 4)])
def test_the_fixed_norm_kernels_are_batch_norm_in_eval_mode(shape, with_shortcut, relu):
    from macer.kernels.batchnorm import FixedNormReLU

    norm = random_norm(shape[1]).eval().requires_grad_(False)
    inputs, others = twins(
        random_images(*shape) * 2 + 1, *[random_images(*shape)] * with_shortcut
    )  # fmt: skip
    y = FixedNormReLU.apply(inputs[0], inputs[1] if with_shortcut else None, norm, relu)
    expected = norm(others[0]) + (others[1] if with_shortcut else 0)
    expected = expected.relu() if relu else expected
    dy = torch.randn(shape)
    y.backward(dy)
    expected.backward(dy)
    assert_close(y, expected)
    for a, b in zip(inputs, others, strict=True):
        assert_close(a.grad, b.grad)
