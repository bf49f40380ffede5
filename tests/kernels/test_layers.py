"""Layers that stand in for torch's, beside torch's."""

import pytest
import torch
from interpreted import random_images
from torch import nn

from macer.kernels.layers import Projection


@pytest.mark.parametrize(("size", "stride"), [((6, 4), (2, 2)), ((5, 7), (2, 3)), ((3, 3), (1, 2))])
def test_a_projection_is_its_convolution(size, stride):
    torch.manual_seed(0)
    layer = nn.Conv2d(5, 4, 1, stride=stride).double()
    x = random_images(2, 5, *size).double()
    y = Projection(layer)(x)
    torch.testing.assert_close(y, layer(x))
    assert y.is_contiguous(memory_format=torch.channels_last)
