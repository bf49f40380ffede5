"""Convolutions of few inputs by our kernels, run by Triton's interpreter, beside torch's."""

import pytest
import torch
from interpreted import assert_close, needs_interpreter, random_images
from torch.nn import functional as F

pytestmark = needs_interpreter

# Channels, size, padding and pooling: a ResNet's stem, LeNet's, and one that is like neither.
STEMS = pytest.mark.parametrize(
    ("channels", "size", "padding", "pool"), [(3, 3, 1, 1), (1, 5, 0, 2), (2, 4, 1, 2)]
)


@STEMS
def test_the_product_of_training_is_the_convolution_and_its_gradient(
    monkeypatch, channels, size, padding, pool
):
    from macer.kernels import stem

    monkeypatch.setattr(stem, "DTYPE", torch.float32)
    torch.manual_seed(0)
    x, weight = random_images(5, channels, 9, 7), torch.randn(16, channels, size, size)
    ours, theirs = (weight.clone().requires_grad_() for _ in range(2))
    y, expected = stem.stem(x, ours, padding=padding), F.conv2d(x, theirs, padding=padding)
    assert_close(y, expected)
    dy = torch.randn_like(expected)
    y.backward(dy)
    expected.backward(dy)
    assert_close(ours.grad, theirs.grad)


@STEMS
@pytest.mark.parametrize("outputs", [16, 20])
def test_the_kernel_of_certification_is_convolution_pooling_and_relu(
    channels, size, padding, pool, outputs
):
    from macer.kernels.stem import stem_relu, stem_weights

    torch.manual_seed(0)
    x, bias = random_images(5, channels, 9, 7), torch.randn(outputs)
    weight = torch.randn(outputs, channels, size, size)
    settings = {"outputs": outputs, "size": size, "padding": padding, "pool": pool}
    y = stem_relu(x, *stem_weights(weight, bias), **settings)
    expected = F.conv2d(x, weight, bias, padding=padding)
    assert_close(y, F.max_pool2d(expected.relu(), pool))


def test_nan_passes_through_the_relu():
    from macer.kernels.stem import stem_relu, stem_weights

    x = random_images(2, 1, 6, 6)
    x[1, 0, 2, 2] = torch.nan
    weight, bias = stem_weights(torch.ones(16, 1, 3, 3), torch.zeros(16))
    y = stem_relu(x, weight, bias, outputs=16, size=3, padding=0, pool=2)
    assert y[1, :, 0, 0].isnan().all() and y[0].isfinite().all()
