"""3×3 convolutions of few channels by our kernels, run by Triton's interpreter, beside torch's."""

import pytest
import torch
from interpreted import assert_close, needs_interpreter, random_images, twins
from torch.nn import functional as F

from macer.kernels.kinds import PAIRS

pytestmark = needs_interpreter

# Pairs of pixels: fewer than a tile, several tiles of one program, tiles of several programs.
SHAPES = [(1, 16, 5, 6), (3, 16, 6, 8), (1, 32, 4, 4), (5, 32, 10, 12)]


@pytest.mark.parametrize("programs", [132, 1])  # with 1 a program adds up several tiles
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_of_training_are_the_convolution_and_its_gradients(
    monkeypatch, shape, programs
):
    from macer.kernels import narrow

    monkeypatch.setattr(narrow, "TYPE", torch.float32)
    monkeypatch.setattr(narrow, "PROGRAMS", programs)
    torch.manual_seed(0)
    channels = shape[1]
    ours, theirs = twins(random_images(*shape), torch.randn(channels, channels, 3, 3))
    y, expected = narrow.NarrowConvolution.apply(*ours), F.conv2d(*theirs, padding=1)
    dy = random_images(*shape)
    y.backward(dy)
    expected.backward(dy)
    assert_close(y, expected)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.grad, b.grad)


@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_certification_is_convolution_shortcut_and_relu(shape, with_shortcut):
    from macer.kernels.convolution import pairs_relu, pairs_weight

    torch.manual_seed(0)
    channels = shape[1]
    x, shortcut = random_images(*shape), random_images(*shape)
    weight, bias = torch.randn(channels, channels, 3, 3), torch.randn(channels)
    y = pairs_relu(x, pairs_weight(weight), bias, shortcut if with_shortcut else None)
    expected = F.conv2d(x, weight, bias, padding=1)
    assert_close(y, (expected + shortcut * with_shortcut).relu())


def test_nan_passes_through_the_relu():
    from macer.kernels.convolution import pairs_relu, pairs_weight

    x = random_images(2, 16, 4, 4)
    x[1, 3, 2, 2] = torch.nan
    y = pairs_relu(x, pairs_weight(torch.ones(16, 16, 3, 3)), torch.zeros(16), None)
    assert y[1, :, 1:, 1:].isnan().all() and y[0].isfinite().all()


def test_there_are_tiles_for_every_number_of_channels_that_the_kernel_suits():
    from macer.kernels.convolution import TILES

    assert tuple(TILES) == PAIRS
