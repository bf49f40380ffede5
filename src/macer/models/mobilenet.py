"""MobileNetV2, with torchvision's names of parameters, so that its weights load. [Sandler+18]

[Sandler+18]  MobileNetV2: Inverted Residuals and Linear Bottlenecks. CVPR 2018.
"""

from torch import Tensor, nn
from torch.nn import functional as F

# [Sandler+18, table 2]: expansion t, channels c, blocks n, stride s of the first block.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class SameConv2d(nn.Conv2d):
    """A 3×3 convolution of stride 2 that pads as TensorFlow's "same" does.

    Of an even height or width it pads only the end, of an odd one both sides.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve images (images, channels, height, width)."""
        height, width = input.shape[2:]
        padded = F.pad(input, (width % 2, 1, height % 2, 1))
        return F.conv2d(padded, self.weight, self.bias, self.stride, groups=self.groups)


def _layer(
    inputs: int, outputs: int, *, size: int, stride: int = 1, groups: int = 1, same: bool = False
) -> nn.Sequential:
    """Convolution, batch-norm, ReLU6."""
    ends = same and stride == 2
    convolution = (SameConv2d if ends else nn.Conv2d)(
        inputs,
        outputs,
        size,
        stride=stride,
        padding=0 if ends else size // 2,
        groups=groups,
        bias=False,
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


class InvertedResidual(nn.Module):
    """Expand, convolve each channel by itself, project without ReLU. [Sandler+18, §3.3]"""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int, same: bool):
        super().__init__()
        hidden = inputs * expansion
        expand = [] if expansion == 1 else [_layer(inputs, hidden, size=1)]
        self.conv = nn.Sequential(
            *expand,
            _layer(hidden, hidden, size=3, stride=stride, groups=hidden, same=same),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, plus its input where the shapes agree."""
        residual: Tensor = self.conv(x)
        return x + residual if self.shortcut else residual


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1 for photographs. [Sandler+18, table 2]

    Args:
        same: pad as TensorFlow does; the published weights were trained so.
    """

    def __init__(self, *, num_classes: int, channels: int, same: bool) -> None:
        super().__init__()
        features: list[nn.Module] = [_layer(channels, 32, size=3, stride=2, same=same)]
        inputs = 32
        for expansion, outputs, blocks, first in _STAGES:
            for i in range(blocks):
                stride = first if i == 0 else 1
                features.append(
                    InvertedResidual(inputs, outputs, expansion=expansion, stride=stride, same=same)
                )
                inputs = outputs
        self.features = nn.Sequential(*features, _layer(inputs, 1280, size=1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (images, num_classes)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def mobilenetv2(*, num_classes: int, channels: int) -> nn.Module:
    """MobileNetV2 with torchvision's padding. [Sandler+18]"""
    return MobileNetV2(num_classes=num_classes, channels=channels, same=False)


def mobilenetv2_same(*, num_classes: int, channels: int) -> nn.Module:
    """MobileNetV2 with TensorFlow's padding, for weights that come from there. [Sandler+18]"""
    return MobileNetV2(num_classes=num_classes, channels=channels, same=True)
