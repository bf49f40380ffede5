"""The layers that stand in for torch's own in a network for a GPU.

They import Triton's kernels when they are first run: on a CPU there is no Triton.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macer.kernels.graph import suits_conv3x3, suits_stem
from macer.kernels.padding import Padding, padded_parameters

# in certification


class ConvolutionReLU(nn.Module):
    """max_pool2d(ReLU(convolution(x) + shortcut), pool): our kernels for few channels, or cuDNN's.

    Args:
        convolution: without groups, padded with zeros.
    """

    pool = 1  # or 2

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        from macer.kernels.conv3x3 import pair_weights
        from macer.kernels.stem import stem_weights

        bias: Tensor | None
        weight, bias = convolution.weight.detach(), convolution.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias, self.bias32 = bias, bias.float()
        self.settings: Any = (convolution.stride, convolution.padding, convolution.dilation, 1)
        self.pairs = pair_weights(weight, weight.dtype) if suits_conv3x3(convolution) else None
        self.stem = stem_weights(weight, self.bias32) if suits_stem(convolution) else None

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Activations, channels last."""
        if self.stem is not None and shortcut is None:
            from macer.kernels.stem import stem_relu

            size, padding = self.weight.shape[2], self.settings[1][0]
            return stem_relu(
                x, *self.stem, outputs=len(self.weight), size=size, padding=padding, pool=self.pool
            )
        y = self._convolved(x, shortcut)
        if self.pool == 1:
            return y
        from macer.kernels.pooling import max_pool2x2

        return max_pool2x2(y)

    def _convolved(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        if self.pairs is not None and x.shape[3] % 2 == 0:
            from macer.kernels.conv3x3 import conv3x3_relu

            return conv3x3_relu(x, self.pairs, self.bias32, shortcut)
        if shortcut is None:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.settings)
        return torch.cudnn_convolution_add_relu(
            x, self.weight, shortcut, 1.0, self.bias, *self.settings
        )


class FloatLinear(nn.Module):
    """The last layer in float32: logits of bfloat16, which has 8 bits, would often be equal."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().float(), requires_grad=False)
        self.bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return F.linear(x.float(), self.weight, self.bias)


class Projection(nn.Module):
    """A 1×1 convolution with a stride, as a product of matrices.

    cuDNN has no bf16 kernel for it: it converts to another layout and back.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations, channels last."""
        down, right = self.convolution.stride
        pixels = x[:, :, ::down, ::right].permute(0, 2, 3, 1)
        rows = pixels.reshape(-1, pixels.shape[3])  # one product for all images
        y = F.linear(rows, self.convolution.weight.flatten(1), self.convolution.bias)
        return y.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


# in training


def kernels_apply(x: Tensor) -> bool:
    """Whether our kernels replace torch's: they compute in bf16, as layers do under autocast."""
    return x.is_cuda and torch.is_autocast_enabled("cuda")


class NormLayer(nn.Module):
    """ReLU(norm(x) + shortcut); the shortcut and the ReLU are optional."""

    def __init__(self, norm: nn.BatchNorm2d, *, relu: bool) -> None:
        super().__init__()
        self.norm, self.relu = norm, relu

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Activations."""
        norm = self.norm
        if self.training and kernels_apply(x):
            from macer.kernels.batchnorm import NormReLU

            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.add_(1)
            fused: Tensor = NormReLU.apply(x, shortcut, norm.weight, norm.bias, norm, self.relu)  # type: ignore[no-untyped-call]
            return fused
        trained = norm.weight.requires_grad or norm.bias.requires_grad
        if kernels_apply(x) and not (self.training or trained):  # under attack
            from macer.kernels.batchnorm import FixedNormReLU

            fixed: Tensor = FixedNormReLU.apply(x, shortcut, norm, self.relu)  # type: ignore[no-untyped-call]
            return fixed
        y: Tensor = norm(x)
        y = y if shortcut is None else y + shortcut
        return F.relu(y) if self.relu else y


class Conv3x3Layer(nn.Module):
    """A 3×3 convolution of few channels."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations."""
        if kernels_apply(x) and x.shape[3] % 2 == 0:
            from macer.kernels.conv3x3 import Conv3x3

            y: Tensor = Conv3x3.apply(x, self.convolution.weight)  # type: ignore[no-untyped-call]
            return y
        result: Tensor = self.convolution(x)
        return result


class StemLayer(nn.Module):
    """A convolution of few inputs."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations."""
        if kernels_apply(x) and not x.requires_grad:  # an attack wants the images' gradient
            from macer.kernels.stem import stem

            return stem(x, self.convolution.weight, padding=int(self.convolution.padding[0]))
        result: Tensor = self.convolution(x)
        return result


class PaddedLayer(nn.Module):
    """A layer whose own weight is padded in every pass, so that training changes it alone."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, padding: Padding) -> None:
        super().__init__()
        self.layer, self.padding = layer, padding

    def forward(self, x: Tensor) -> Tensor:
        """Activations, with more channels."""
        weight, bias = padded_parameters(self.layer.weight, self.layer.bias, self.padding)
        if isinstance(self.layer, nn.Linear):
            return F.linear(x, weight, bias)
        y: Tensor = self.layer._conv_forward(x, weight, bias)
        return y


def pool_relu(x: Tensor) -> Tensor:
    """ReLU(max_pool2d(x, 2))."""
    even = x.shape[1] % 8 == x.shape[2] % 2 == x.shape[3] % 2 == 0
    if kernels_apply(x) and even:
        from macer.kernels.pooling import MaxPool2x2ReLU

        y: Tensor = MaxPool2x2ReLU.apply(x)  # type: ignore[no-untyped-call]
        return y
    return F.relu(F.max_pool2d(x, 2))
