"""1×1 convolutions with a stride as products of matrices: cuDNN has no bf16 kernel for them."""

from torch import Tensor, nn
from torch.nn import functional as F


class Projection(nn.Module):
    """A 1×1 convolution with a stride."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations, channels last."""
        down, right = self.convolution.stride
        pixels = x[:, :, ::down, ::right].permute(0, 2, 3, 1)
        rows = pixels.reshape(-1, pixels.shape[3])  # one product, not one an image
        y = F.linear(rows, self.convolution.weight.flatten(1), self.convolution.bias)
        return y.view(*pixels.shape[:3], -1).permute(0, 3, 1, 2)
