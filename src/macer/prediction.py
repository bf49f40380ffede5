"""Label image files by the smoothed classifier, each with the radius it is certified for."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from macer.cards import ModelCard
from macer.certification import ABSTAIN, Certificate, certify, check_settings
from macer.data import DATASETS
from macer.files import sha256_of_file
from macer.fixed_radius import certify_at
from macer.image_files import read_middle
from macer.image_folder import read_image
from macer.inference import for_inference, resolved
from macer.journal import JOURNAL, read_journal, rounded_down
from macer.mistake import Mistake
from macer.progress import bar
from macer.run import Run, load_model
from macer.sequential import check_radius


def predict_files(
    target: Path,
    paths: Sequence[Path],
    *,
    n0: int,
    n: int,
    alpha: float,
    radius: float | None = None,
    seed: int,
    precision: str,
    device: torch.device,
    code: Collection[str] = (),
) -> Iterator[str]:
    """A line for each file: its label and radius, or an abstention.

    With a radius each line says whether the label holds within it, mostly after few of the n
    samples. Where the target has certificates, the labels must come from the function that they
    speak of: the same weights in the same precision.

    Args:
        code: modules that the target's file may name, see `load_model`.
    """
    trained, card = load_model(target, code=code)
    check_settings(sigma=card.sigma, n0=n0, n=n, alpha=alpha, seed=seed)
    certify_one = certify
    if radius is not None:
        check_radius(radius, sigma=card.sigma, alpha=alpha, n_max=n)
        certify_one = partial(certify_at, radius=radius)
    precision = resolved(precision, device)
    if target.is_dir():
        _check_authority(target, precision)
    model = for_inference(trained, shape=card.shape, precision=precision, device=device)
    images = [_image(path, card) for path in paths]
    for path, image in zip(paths, images, strict=True):
        with bar(f"labelling {path.name}", n0 + n, "samples", passing=True) as advance:
            [certificate] = certify_one(
                model,
                image[None].to(device),
                sigma=card.sigma,
                n0=n0,
                n=n,
                alpha=alpha,
                seed=seed,
                indices=[_number(image)],
                progress=advance,
            )
        yield f"{path}\t{_verdict(certificate, card.classes, radius)}"


def _check_authority(run: Path, precision: str) -> None:
    journal = run / JOURNAL
    if not journal.exists():
        return
    header = read_journal(journal).header
    if header["precision"] != precision:
        raise Mistake(
            f"precision must be {header['precision']}, that of the certificates in {run}, "
            f"got {precision}; add --precision {header['precision']}"
        )
    weights = sha256_of_file(Run(run).model)
    if header["weights_sha256"] != weights:
        raise Mistake(
            f"weights must be those of the certificates in {run}, {header['weights_sha256'][:16]}…"
            f", got {weights[:16]}…; certify the new model into another folder"
        )


def _image(path: Path, card: ModelCard) -> Tensor:
    """The file's pixels; the middle of it for a model that was trained on images of any size."""
    if not path.is_file():
        raise Mistake(f"no image at {path}: expected a PNG or JPEG file")
    data_set = DATASETS.get(card.dataset)
    any_size = data_set is not None and data_set.any_size
    image = read_middle(path) if any_size else read_image(path, channels=card.shape[0])
    if image.shape != card.shape:
        wanted, got = ("×".join(map(str, s)) for s in (card.shape, image.shape))
        raise Mistake(f"{path} must be a {wanted} image for this model, got {got}; resize it")
    return torch.from_numpy(image.copy())  # Pillow's own pixels cannot be written to


def _number(image: Tensor) -> int:
    """A number that names the image's noise: the same image, the same answer."""
    return int.from_bytes(hashlib.sha256(image.numpy().tobytes()).digest()[:7], "little")


def _verdict(certificate: Certificate, classes: Sequence[str], radius: float | None) -> str:
    if certificate.label == ABSTAIN:
        return "abstains" if radius is None else f"abstains\tno label shown within {radius:g}"
    return f"{classes[certificate.label]}\tradius {rounded_down(certificate.radius, 4)}"
