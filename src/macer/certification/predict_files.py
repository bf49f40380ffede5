"""Label image files by the smoothed classifier, each with its certified radius."""

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from macer.certification.anytime import ANYTIME, check_seconds
from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.fixed_radius import sample_and_certify_at
from macer.certification.header import two_sigmas
from macer.certification.journal import read_journal
from macer.certification.largest_radius import Kind, sample_and_certify
from macer.certification.settings import as_images, check_settings
from macer.certification.table import rounded_down
from macer.certification.target import (
    PreparedModel,
    at_sigma,
    other_function,
    prepare,
    trained_target,
)
from macer.certification.watch import watched
from macer.data.image_files import middle_of
from macer.data.photograph import opened_image, photograph_of, without_warnings
from macer.data.sets import DATASETS, size_of
from macer.models.inference import resolve_precision
from macer.runs.model_file import ModelCard
from macer.runs.names import JOURNAL
from macer.smoothing.bounds import check_reading
from macer.smoothing.sampling import Sampler
from macer.smoothing.sequential import check_radius
from macer.system.errors import Mistake
from macer.system.progress import bar
from macer.system.text import shape_text

if TYPE_CHECKING:
    from PIL import ImageFile


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A file's label and certified radius, and how they were found."""

    file: Path
    abstained: bool
    label: int | None  # None if abstained
    class_name: str | None
    radius: float  # rounded down to four decimals, as it is printed; 0 if abstained
    asked: float | None  # the one radius asked for, if any
    sigma: float
    trained_at: float  # the σ of the training
    n0: int
    n: int
    drawn: int  # how many of the n samples were drawn
    bound: str
    alpha: float
    seed: int
    exact: bool
    precision: str

    def fields(self) -> tuple[str, ...]:
        """The fields of its printed line."""
        other = self.sigma != self.trained_at
        note = (two_sigmas(f"{self.trained_at:g}", self.sigma),) if other else ()
        if self.class_name is not None:
            return (str(self.file), self.class_name, f"radius {self.radius:.4f}", *note)
        reason = () if self.asked is None else (f"no label shown within {self.asked:g}",)
        return (str(self.file), "abstains", *reason, *note)


def predict_files(
    target: Path,
    paths: Sequence[Path],
    *,
    n0: int,
    n: int,
    alpha: float,
    bound: str = "clopper-pearson",
    radius: float | None = None,
    seconds: float | None = None,
    sigma: float | None = None,
    seed: int,
    precision: str,
    row_by_row: bool = False,
    device: torch.device,
    code: Collection[str] = (),
) -> Iterator[Prediction]:
    """The label and radius of each file, or an abstention.

    With a radius, only whether the label holds within it is decided, usually after few of the n
    samples. If the target has certificates, the labels must come from the function that was
    certified: the same weights in the same precision.

    With the bound anytime, the label and a radius that grows are shown while samples come in. An
    interruption then ends with the certificate so far, before it is raised.

    Args:
        bound: of hard votes; a radius has a test of its own and takes none.
        seconds: most time for each file, with the bound anytime.
        sigma: of the noise; that of the training if None. Certificates of the target are at that
            of the training, and then bind the network without its noise.
        code: modules that the target's file may name, see `load_model`.
    """
    trained, card = trained_target(str(target), code=code)
    asked = at_sigma(trained, sigma)
    check_settings(sigma=asked.sigma, n0=n0, n=n, alpha=alpha, bound=bound, seed=seed)
    check_seconds(seconds)
    _check_bound(bound, radius, sigma=asked.sigma, alpha=alpha, n=n)
    images = [_file_image(path, card) for path in paths]  # a mistake in one is told at once
    precision = resolve_precision(precision, device)
    model = prepare(trained, precision=precision, row_by_row=row_by_row, device=device)
    if target.is_dir():
        check_certified_function(target, model)
    for path, image in zip(paths, images, strict=True):
        sampler = Sampler(
            model=model.network, images=as_images(image[None].to(device)), sigma=asked.sigma,
            seed=seed, indices=[noise_number(image)], row_by_row=row_by_row,
        )  # fmt: skip
        interruption = None
        if bound == ANYTIME:
            certificate, interruption = watched(
                sampler, path.name, card.classes, n0=n0, n=n, alpha=alpha, seconds=seconds
            )
        else:
            certificate = _certificate(sampler, path.name, radius, bound, n0=n0, n=n, alpha=alpha)
        abstained = certificate.label == ABSTAIN
        yield Prediction(
            file=path,
            abstained=abstained,
            label=None if abstained else certificate.label,
            class_name=None if abstained else card.classes[certificate.label],
            radius=float(rounded_down(certificate.radius, 4)),
            asked=radius,
            sigma=asked.sigma,
            trained_at=card.sigma,
            n0=n0,
            n=n,
            drawn=certificate.drawn,
            bound=bound,
            alpha=alpha,
            seed=seed,
            exact=sampler.exact,
            precision=precision,
        )
        if interruption:
            raise interruption


def _check_bound(bound: str, radius: float | None, *, sigma: float, alpha: float, n: int) -> None:
    """Refuse a soft bound; for the test of one radius any other bound, and one out of reach."""
    if bound != ANYTIME:
        check_reading(bound)
    if radius is not None and bound != "clopper-pearson":
        raise Mistake(f"bound must be clopper-pearson with a radius, got {bound}")
    if radius is not None:
        check_radius(radius, sigma=sigma, alpha=alpha, n_max=n)


def _certificate(
    sampler: Sampler, name: str, radius: float | None, bound: str, *, n0: int, n: int, alpha: float
) -> Certificate:
    """The certificate of the sampler's one image: at a radius, or with the largest one."""
    with bar(f"labelling {name}", n0 + n, "samples", transient=True) as advance:
        sampler = replace(sampler, progress=advance)
        if radius is None:
            [[certificate]] = sample_and_certify(sampler, [Kind(bound)], n0=n0, n=n, alpha=alpha)
        else:
            [certificate] = sample_and_certify_at(sampler, radius, n0=n0, n=n, alpha=alpha)
        advance.reach(n0 + n)
    return certificate


def check_certified_function(run: Path, model: PreparedModel) -> None:
    """Refuse to label by another function than the one that the run's certificates are about."""
    journal = run / JOURNAL
    if not journal.exists():
        return
    header = read_journal(journal).header
    if header.precision != model.precision:
        raise Mistake(
            f"precision must be {header.precision}, that of the certificates in {run}, "
            f"got {model.precision}; add --precision {header.precision}"
        )
    if (certified := header.row_by_row) != model.row_by_row:
        flag = "--row-by-row" if certified else "--no-row-by-row"
        raise Mistake(
            f"row_by_row must be {certified}, as for the certificates in {run}, got "
            f"{model.row_by_row}; add {flag}"
        )
    if other := other_function(header, model):
        raise Mistake(
            f"the model must be that of the certificates in {run}: {other}; certify the new model "
            "into another folder"
        )


def _file_image(path: Path, card: ModelCard) -> Tensor:
    card.require_images("the model")
    if path.is_dir():
        raise Mistake(f"{path} must be an image file, got a folder; name its files, as {path}/*")
    if not path.is_file():
        raise Mistake(f"no image at {path}: expected a PNG, JPEG, WebP, BMP or TIFF file")
    with without_warnings(), opened_image(path) as image:
        return model_input(image, card)


def model_input(image: "ImageFile.ImageFile", card: ModelCard) -> Tensor:
    """The pixels, prepared as those that the model was trained on."""
    data_set = DATASETS.get(card.dataset)
    any_size = data_set is not None and data_set.any_size
    size = size_of(card.dataset)
    pixels = (
        middle_of(image)
        if any_size
        else photograph_of(image, channels=card.shape[0], size=size).pixels
    )
    if pixels.shape != card.shape:
        expected, got = shape_text(card.shape), shape_text(pixels.shape)
        path = os.fsdecode(image.filename)
        raise Mistake(f"{path} must be a {expected} image for this model, got {got}; resize it")
    return torch.from_numpy(pixels.copy())  # Pillow's own pixels cannot be written to


def noise_number(image: Tensor) -> int:
    """The number that names the image's noise: the same image always gets the same answer."""
    return int.from_bytes(hashlib.sha256(image.numpy().tobytes()).digest()[:7], "little")
