"""3×3 convolutions of few channels by our kernels, run by Triton's interpreter, beside torch's."""

import pytest
import torch
from interpreted import assert_close, needs_interpreter, random_images, twins
from torch.nn import functional as F

from macer.kernels.graph import CONV3X3_CHANNELS

pytestmark = needs_interpreter

# Pairs of pixels: fewer than a tile, several tiles of one program, tiles of several programs.
SHAPES = [(1, 16, 5, 6), (3, 16, 6, 8), (1, 32, 4, 4), (5, 32, 10, 12)]


def drawn_matrices(weight):
    """The matrices in the drawing of conv3x3.py, block by block."""
    rows = []
    for r in range(3):
        W = [weight[:, :, r, s].T for s in range(3)]
        zero = torch.zeros_like(W[0])
        rows += [[W[0], zero], [W[1], W[0]], [W[2], W[1]], [zero, W[2]]]
    return torch.cat([torch.cat(row, dim=1) for row in rows])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_weights_of_pairs_are_those_of_the_drawing(layout):
    from macer.kernels.conv3x3 import pair_weights

    weight = torch.randn(16, 16, 3, 3).contiguous(memory_format=layout)
    flipped = weight.transpose(0, 1).flip(2, 3)
    assert torch.equal(pair_weights(weight, torch.float32), drawn_matrices(weight))
    backwards = pair_weights(weight, torch.float32, flipped=True)
    assert torch.equal(backwards, drawn_matrices(flipped))


@pytest.mark.parametrize("programs", [132, 1])  # with 1 a program adds up several tiles
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_of_training_are_the_convolution_and_its_gradients(
    monkeypatch, shape, programs
):
    from macer.kernels import conv3x3

    monkeypatch.setattr(conv3x3, "DTYPE", torch.float32)
    monkeypatch.setattr(conv3x3, "PROGRAMS", programs)
    torch.manual_seed(0)
    channels = shape[1]
    ours, theirs = twins(random_images(*shape), torch.randn(channels, channels, 3, 3))
    y, expected = conv3x3.Conv3x3.apply(*ours), F.conv2d(*theirs, padding=1)
    dy = random_images(*shape)
    y.backward(dy)
    expected.backward(dy)
    assert_close(y, expected)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a.grad, b.grad)


@pytest.mark.parametrize("with_shortcut", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_certification_is_convolution_shortcut_and_relu(shape, with_shortcut):
    from macer.kernels.conv3x3 import conv3x3_relu, pair_weights

    torch.manual_seed(0)
    channels = shape[1]
    x, shortcut = random_images(*shape), random_images(*shape)
    weight, bias = torch.randn(channels, channels, 3, 3), torch.randn(channels)
    y = conv3x3_relu(
        x, pair_weights(weight, torch.float32), bias, shortcut if with_shortcut else None
    )
    expected = F.conv2d(x, weight, bias, padding=1)
    assert_close(y, (expected + shortcut * with_shortcut).relu())


def test_nan_passes_through_the_relu():
    from macer.kernels.conv3x3 import conv3x3_relu, pair_weights

    x = random_images(2, 16, 4, 4)
    x[1, 3, 2, 2] = torch.nan
    weight = pair_weights(torch.ones(16, 16, 3, 3), torch.float32)
    y = conv3x3_relu(x, weight, torch.zeros(16), None)
    assert y[1, :, 1:, 1:].isnan().all() and y[0].isfinite().all()


def test_there_are_tiles_for_every_number_of_channels_that_the_kernel_suits():
    from macer.kernels.conv3x3 import TILES

    assert tuple(TILES) == CONV3X3_CHANNELS
