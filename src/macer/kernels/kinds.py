"""Kinds of convolution that cuDNN is slow at."""

from typing import Any

from torch import nn

PAIRS = (16, 32)  # channels that convolution.py has a kernel for


def is_pairs(layer: nn.Conv2d) -> bool:
    """A 3×3 convolution that keeps its few channels and the image's size."""
    channels = layer.in_channels == layer.out_channels and layer.in_channels in PAIRS
    return channels and _is_square(layer, padding=1) and layer.kernel_size == (3, 3)


def is_stem(layer: nn.Conv2d) -> bool:
    """A square convolution of few inputs."""
    few = layer.in_channels <= 3 and layer.weight[0].numel() <= 32
    return few and _is_square(layer, padding=layer.padding[0])


def is_projection(layer: nn.Conv2d) -> bool:
    """A 1×1 convolution with a stride."""
    kernel, stride, padding = layer.kernel_size, layer.stride, layer.padding
    return kernel == (1, 1) and padding == (0, 0) and stride != (1, 1) and layer.groups == 1


def _is_square(layer: nn.Conv2d, *, padding: Any) -> bool:
    """Whether height and width are treated alike, every pixel and channel of them."""
    height, width = layer.kernel_size
    dense = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    padded = layer.padding == (padding, padding) and layer.padding_mode == "zeros"
    return height == width and dense and padded
