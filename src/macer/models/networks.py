"""The networks, by name in `MODELS`; normalisation is the first layer of every model.

Parameter names and shapes are those of published checkpoints: `resnet50` has torchvision's,
`resnet20` and `resnet110` have those of the code of [Cohen+19], `lenet` that of [Zhai+20],
`resnet20a` those of the usual CIFAR-10 ResNets with shortcuts of option A.

[Cohen+19]  Certified Adversarial Robustness via Randomized Smoothing. ICML 2019.
[He+15]     Delving Deep into Rectifiers. ICCV 2015.
[He+16]     Deep Residual Learning for Image Recognition. CVPR 2016.
[Zhai+20]   MACER: Attack-free and Scalable Robust Training. ICLR 2020.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macer.models.mobilenet import mobilenetv2, mobilenetv2_same
from macer.system.errors import Mistake


class Normalize(nn.Module):
    """Per-channel normalisation, (x − mean) / std, for images in [0, 1].

    Args:
        mean: (channels,); a mean of 0 and a std of 1 leave the images as they are.
        std: (channels,)
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise Mistake(
                f"mean and std must have one value per channel, got {len(mean)} and {len(std)}"
            )
        if not all(map(math.isfinite, mean)):
            raise Mistake(f"mean must be finite, got {tuple(mean)}")
        if not all(0 < value < math.inf for value in std):
            raise Mistake(f"std must be finite and > 0, got {tuple(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images (images, channels, height, width)."""
        return (x - self.mean) / self.std


class LeNet(nn.Module):
    """Two 5×5 convolutions and two linear layers for 28×28 images. [Zhai+20, code]"""

    def __init__(self, *, num_classes: int, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(50 * 4 * 4, 500)
        self.fc2 = nn.Linear(500, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (images, num_classes) of images (images, channels, 28, 28)."""
        # Unlike the paper's code: pool, then ReLU. Both are monotone, so their order does not
        # change the result, and ReLU has a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        # flatten follows the logical order, so that channels-last images give the same logits.
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution that keeps the image size at stride 1; the batch-norm after it has the bias."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Identity if the shapes agree, else a projection. [He+16, §3.3, option B]

    Unlike [He+16, §4.2], which pads with zeros for CIFAR (option A): the networks of [Cohen+19]
    and [Zhai+20] project for CIFAR too.
    """
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class PaddedShortcut(nn.Module):
    """Every second pixel, between channels of zeros. [He+16, §3.3, option A]"""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.zeros = (outputs - inputs) // 2  # channels before and after

    def forward(self, x: Tensor) -> Tensor:
        """Images of half the size with more channels."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.zeros, self.zeros))


def _padded_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 else PaddedShortcut(inputs, outputs)


Shortcut = Callable[[int, int, int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut. [He+16, fig. 5 left]"""

    expansion: ClassVar[int] = 1

    def __init__(
        self, inputs: int, width: int, *, stride: int, shortcut: Shortcut = _shortcut
    ) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the residual plus the shortcut."""
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        return F.relu(residual + self.downsample(x))


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut. [He+16, fig. 5 right]

    Unlike the paper: the 3×3 convolution has the stride, as in torchvision's weights.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = _conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the residual plus the shortcut."""
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = F.relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        return F.relu(residual + self.downsample(x))


class PaddedBlock(BasicBlock):
    """Two 3×3 convolutions beside a shortcut without weights. [He+16, §4.2]"""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__(inputs, width, stride=stride, shortcut=_padded_shortcut)


Block = type[BasicBlock] | type[Bottleneck]
Stem = Literal["small", "halving", "large"]


def _stem(kind: Stem, channels: int, width: int) -> dict[str, nn.Module]:
    """The first layers, for small or large images. [He+16, §4.2; table 1]

    small: 3×3; large: 7×7 with stride 2, then pooling; halving: 4×4 with stride 2. The last is
    ours: no layer works at the full size, where a layer costs the most memory traffic.
    """
    convolutions = {
        "small": partial(_conv, size=3),
        "halving": partial(nn.Conv2d, kernel_size=4, stride=2, padding=1, bias=False),
        "large": partial(_conv, size=7, stride=2),
    }
    norm = nn.BatchNorm2d(width)
    layers = {"conv1": convolutions[kind](channels, width), "bn1": norm, "relu": nn.ReLU()}
    pooling = {"maxpool": nn.MaxPool2d(3, stride=2, padding=1)}
    return layers | pooling if kind == "large" else layers


def _stage(block: Block, inputs: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first has the stride."""
    outputs = width * block.expansion
    first = block(inputs, width, stride=stride)
    return nn.Sequential(first, *(block(outputs, width, stride=1) for _ in range(1, blocks)))


def resnet(
    block: Block,
    *,
    blocks: Sequence[int],
    width: int,
    num_classes: int,
    channels: int,
    stem: Stem = "small",
    last: str = "fc",
) -> nn.Sequential:
    """A residual network as a sequence of named layers. [He+16]

    Args:
        blocks: the number of blocks in each stage; each stage but the first halves the image and
            doubles the width.
        width: channels of the stem and of the first stage.
        last: name of the layer of classes.
    """
    layers = _stem(stem, channels, width)
    inputs = width
    for i, count in enumerate(blocks):
        stage_width, stride = width * 2**i, 1 if i == 0 else 2
        layers[f"layer{i + 1}"] = _stage(block, inputs, stage_width, blocks=count, stride=stride)
        inputs = stage_width * block.expansion
    layers |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten()}
    layers[last] = nn.Linear(inputs, num_classes)
    network = nn.Sequential(OrderedDict(layers))
    _he_initialise(network)
    return network


def _he_initialise(network: nn.Module) -> None:
    """Draw convolutions from N(0, 2 / (size² · outputs)). [He+15, eq. 14]"""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def lenet(*, num_classes: int, channels: int) -> nn.Module:
    """LeNet for 28×28 images, the paper's network for MNIST. [Zhai+20, §5]"""
    return LeNet(num_classes=num_classes, channels=channels)


def resnet20(*, num_classes: int, channels: int) -> nn.Module:
    """ResNet-20 for 32×32 images: 6n + 2 layers with n = 3. [He+16, §4.2]"""
    return resnet(
        BasicBlock, blocks=(3, 3, 3), width=16, num_classes=num_classes, channels=channels
    )


def resnet20a(*, num_classes: int, channels: int) -> nn.Module:
    """ResNet-20 with shortcuts without weights, as published for CIFAR-10. [He+16, §4.2]"""
    return resnet(
        PaddedBlock, blocks=(3, 3, 3), width=16, num_classes=num_classes, channels=channels,
        last="linear",
    )  # fmt: skip


def resnet110(*, num_classes: int, channels: int) -> nn.Module:
    """ResNet-110, n = 18, the paper's network for CIFAR-10 and SVHN. [He+16, §4.2; Zhai+20, §5]"""
    return resnet(
        BasicBlock, blocks=(18, 18, 18), width=16, num_classes=num_classes, channels=channels
    )


def resnet18(*, num_classes: int, channels: int) -> nn.Module:
    """ResNet-18 with a stem for 32×32 images. [He+16, table 1]"""
    return resnet(
        BasicBlock, blocks=(2, 2, 2, 2), width=64, num_classes=num_classes, channels=channels
    )


def resnet50(*, num_classes: int, channels: int) -> nn.Module:
    """ResNet-50, the paper's network for ImageNet. [He+16, table 1; Zhai+20, §5]"""
    return resnet(
        Bottleneck,
        blocks=(3, 4, 6, 3),
        width=64,
        num_classes=num_classes,
        channels=channels,
        stem="large",
    )


def wide14(*, num_classes: int, channels: int) -> nn.Module:
    """Fourteen wide layers for 32×32 images, none of them at the full size.

    It is made for fast training and certification: 128 channels keep a tensor core busy, and most
    memory traffic is at the full size. 3.3 million parameters, 6.6 MB in half precision.
    """
    return resnet(
        BasicBlock,
        blocks=(4, 2),
        width=128,
        num_classes=num_classes,
        channels=channels,
        stem="halving",
    )


def small12(*, num_classes: int, channels: int) -> nn.Module:
    """Twelve narrow layers for 32×32 images, made for a CPU: a ninth of wide14's operations.

    One block at half the size and two each at a quarter and an eighth; 48 channels fill vector
    registers of 16 floats. 1.5 million parameters, 49 million products per image.
    """
    return resnet(
        BasicBlock,
        blocks=(1, 2, 2),
        width=48,
        num_classes=num_classes,
        channels=channels,
        stem="halving",
    )


# To add a network, add its function here; `--model`, recipes and tests take the name from this
# table. The function takes num_classes and channels and returns logits (images, num_classes).
MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": lenet,
    "mobilenetv2": mobilenetv2,
    "mobilenetv2-same": mobilenetv2_same,
    "resnet18": resnet18,
    "resnet20": resnet20,
    "resnet20a": resnet20a,
    "resnet50": resnet50,
    "resnet110": resnet110,
    "small12": small12,
    "wide14": wide14,
}
