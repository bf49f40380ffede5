"""Denoisers before a classifier, by name in `DENOISERS`.

[Salman+20]  Denoised Smoothing: A Provable Defense for Pretrained Classifiers. NeurIPS 2020.
[Zhang+17]   Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image Denoising. IEEE
             Transactions on Image Processing 2017.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from macer.system.errors import Mistake
from macer.system.user_code import nearest


class DnCNN(nn.Module):
    """x minus the noise that 3×3 convolutions predict. [Zhang+17, §III.A]

    D(x) = x − R(x);  R: convolution, ReLU; convolution, batch-norm, ReLU …; convolution

    Unlike the paper: the last convolution begins at 0, so that a fresh denoiser is the identity.
    """

    def __init__(self, *, channels: int, depth: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            layers += [nn.ReLU()]
        last = nn.Conv2d(width, channels, 3, padding=1, bias=False)
        nn.init.zeros_(last.weight)
        self.noise = nn.Sequential(*layers, last)

    def forward(self, x: Tensor) -> Tensor:
        """Images without their noise, of the same shape."""
        residual: Tensor = self.noise(x)
        return x - residual


class Denoised(nn.Module):
    """A classifier of denoised images, f ∘ D. [Salman+20]

    Unlike the paper: the classifier's normalisation stands before both, so D works on normalised
    images. The normalisation is a bijection: nothing is lost.
    """

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """The classifier's logits (images, num_classes)."""
        logits: Tensor = self.classifier(self.denoiser(x))
        return logits


# `dncnn` has the size of [Zhang+17] and [Salman+20]; `dncnn-small` is for a CPU.
DENOISERS: dict[str, Callable[..., nn.Module]] = {
    "dncnn": partial(DnCNN, depth=17, width=64),
    "dncnn-small": partial(DnCNN, depth=6, width=24),
}


def with_denoiser(name: str, network: nn.Module, channels: int) -> nn.Module:
    """The network behind a fresh denoiser; the network itself if the name is "none"."""
    if name == "none":
        return network
    if name not in DENOISERS:
        raise Mistake(
            f"unknown denoiser {name!r}{nearest(name, DENOISERS)}; choose from none, "
            f"{', '.join(DENOISERS)}"
        )
    return Denoised(DENOISERS[name](channels=channels), network)
