"""Checkpoints as the projects of this field write them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """(x − mean) / std with constants that are plain attributes, so no state dict holds them."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.means, self.sds = torch.tensor(mean), torch.tensor(std)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.means.view(-1, 1, 1)) / self.sds.view(-1, 1, 1)


def trained(network: nn.Module, shape: tuple[int, int, int] = (3, 32, 32)) -> torch.optim.SGD:
    """Take a few steps on noise: statistics move and the optimizer remembers."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        x = torch.rand(8, *shape, generator=generator)
        optimizer.zero_grad()
        network.train()(x).square().mean().backward()
        optimizer.step()
    network.eval()
    return optimizer


def save_as_zhai(network: nn.Module, path: Path, **how: Any) -> None:
    """As the code of the MACER paper: the network alone, without DataParallel's names."""
    torch.save({"net": network.state_dict(), "epoch": 440}, path, **how)


def save_as_cohen(
    model: nn.Module, optimizer: torch.optim.Optimizer, path: Path, *, arch: str, **how: Any
) -> None:
    """As the code of Cohen et al. and the projects built on it: all that a training needs."""
    checkpoint = {
        "epoch": 90,
        "arch": arch,
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(checkpoint, path, **how)


def cifar_resnet(depth: int, num_classes: int = 10) -> dict[str, tuple[int, ...]]:
    """Names and shapes in the files of `cifar_resnet20` and `cifar_resnet110`."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (16, 3, 3, 3), **_norm("bn1", 16)}
    inputs = 16
    for stage, width in enumerate((16, 32, 64), start=1):
        for i in range((depth - 2) // 6):
            block = f"layer{stage}.{i}"
            for c, source in ((1, inputs), (2, width)):
                shapes[f"{block}.conv{c}.weight"] = (width, source, 3, 3)
                shapes |= _norm(f"{block}.bn{c}", width)
            if inputs != width:
                shapes[f"{block}.downsample.0.weight"] = (width, inputs, 1, 1)
                shapes |= _norm(f"{block}.downsample.1", width)
            inputs = width
    return shapes | {"fc.weight": (num_classes, 64), "fc.bias": (num_classes,)}


def imagenet_resnet50(num_classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Names and shapes in the files of torchvision's `resnet50`."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7), **_norm("bn1", 64)}
    inputs = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for i in range(blocks):
            block, outputs = f"layer{stage}.{i}", 4 * width
            sizes = ((width, inputs, 1), (width, width, 3), (outputs, width, 1))
            for c, (wide, source, size) in enumerate(sizes, start=1):
                shapes[f"{block}.conv{c}.weight"] = (wide, source, size, size)
                shapes |= _norm(f"{block}.bn{c}", wide)
            if i == 0:
                shapes[f"{block}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= _norm(f"{block}.downsample.1", outputs)
            inputs = outputs
    return shapes | {"fc.weight": (num_classes, 2048), "fc.bias": (num_classes,)}


LENET = {
    "conv1.weight": (20, 1, 5, 5), "conv1.bias": (20,),
    "conv2.weight": (50, 20, 5, 5), "conv2.bias": (50,),
    "fc1.weight": (500, 800), "fc1.bias": (500,),
    "fc2.weight": (10, 500), "fc2.bias": (10,),
}  # fmt: skip


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    entries = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{entry}": (width,) for entry in entries} | {f"{name}.num_batches_tracked": ()}


def tensors_of(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Random tensors of those shapes; a count is an integer."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.tensor(7) if shape == () else torch.rand(shape, generator=generator) + 0.5
        for name, shape in shapes.items()
    }
