"""Label image files by the smoothed classifier, each with the radius it is certified for."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from macer.certification import ABSTAIN, Certificate, certify, check_settings
from macer.image_folder import read_image
from macer.journal import rounded_down
from macer.mistake import Mistake
from macer.recipes import CertifyRecipe
from macer.run import load_model


def predict_files(
    target: Path,
    paths: Sequence[Path],
    *,
    n0: int,
    n: int,
    alpha: float,
    seed: int,
    device: torch.device,
) -> Iterator[str]:
    """A line for each file: its label and radius, or an abstention."""
    settings = CertifyRecipe(n0=n0, n=n, alpha=alpha, seed=seed)
    model, card = load_model(target)
    check_settings(sigma=card.sigma, n0=n0, n=n, alpha=alpha)
    model.to(device)
    images = [_image(path, card.shape) for path in paths]
    for path, image in zip(paths, images, strict=True):
        [certificate] = certify(
            model,
            image[None].to(device),
            sigma=card.sigma,
            **settings.arguments(),
            indices=[_number(image)],
        )
        yield f"{path}\t{_verdict(certificate, card.classes)}"


def _image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    if not path.is_file():
        raise Mistake(f"no image at {path}: expected a PNG or JPEG file")
    image = read_image(path, channels=shape[0])
    if image.shape != shape:
        wanted, got = ("×".join(map(str, s)) for s in (shape, image.shape))
        raise Mistake(f"{path} must be a {wanted} image for this model, got {got}; resize it")
    return torch.from_numpy(image.copy())  # Pillow's own pixels cannot be written to


def _number(image: Tensor) -> int:
    """A number that names the image's noise: the same image, the same answer."""
    return int.from_bytes(hashlib.sha256(image.numpy().tobytes()).digest()[:7], "little")


def _verdict(certificate: Certificate, classes: Sequence[str]) -> str:
    if certificate.label == ABSTAIN:
        return "abstains"
    return f"{classes[certificate.label]}\tradius {rounded_down(certificate.radius, 4)}"
