"""Layers that stand in for torch's, beside torch's."""

import pytest
import torch
from interpreted import random_images
from torch import nn

from macer.kernels.layers import Projection


@pytest.mark.parametrize(("size", "stride"), [((6, 4), (2, 2)), ((5, 7), (2, 3)), ((3, 3), (1, 2))])
def test_a_projection_is_its_convolution_and_its_gradient_is_channels_last(size, stride):
    torch.manual_seed(0)
    layer = nn.Conv2d(5, 4, 1, stride=stride).double()
    x = random_images(2, 5, *size).double()
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    y, expected = Projection(layer)(ours), layer(theirs)
    torch.testing.assert_close(y, expected)
    dy = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad(out, [of, layer.weight], dy)
        for out, of in ((y, ours), (expected, theirs))
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    assert gradients[0][0].is_contiguous(memory_format=torch.channels_last)
