"""1×1 convolutions with a stride as products of matrices: cuDNN has no bf16 kernel for them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Projection(nn.Module):
    """A 1×1 convolution with a stride."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations, channels last."""
        pixels: Tensor = Thinned.apply(x, self.convolution.stride)  # type: ignore[no-untyped-call]
        pixels = pixels.permute(0, 2, 3, 1)
        rows = pixels.reshape(-1, pixels.shape[3])  # one product, not one an image
        y = F.linear(rows, self.convolution.weight.flatten(1), self.convolution.bias)
        return y.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)


class Thinned(torch.autograd.Function):
    """x[:, :, ::down, ::right] with a gradient in x's own layout, channels last.

    A slice's is not, and to add it to another gradient of x then takes a much slower kernel.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: tuple[int, int]) -> Tensor:
        """Arguments: (images, channels, height, width) and (down, right)."""
        ctx.like, ctx.stride = x.shape, stride
        return x[:, :, :: stride[0], :: stride[1]].contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        """dx, 0 where x was left out."""
        [dy], (images, channels, height, width) = grad_outputs, ctx.like
        dx = dy.new_zeros(images, height, width, channels).permute(0, 3, 1, 2)
        dx[:, :, :: ctx.stride[0], :: ctx.stride[1]] = dy
        return dx, None
