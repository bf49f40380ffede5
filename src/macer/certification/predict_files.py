"""Label image files by the smoothed classifier, each with the radius it is certified for."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from macer.certification.certificate import ABSTAIN
from macer.certification.fixed_radius import certify_at
from macer.certification.journal import read_journal
from macer.certification.largest_radius import certify, check_settings
from macer.certification.table import rounded_down
from macer.certification.target import PreparedModel, other_function, prepare, trained_target
from macer.data.image_files import read_middle
from macer.data.image_folder import read_image
from macer.data.sets import DATASETS
from macer.errors import Mistake
from macer.models.inference import resolved
from macer.runs.model_file import ModelCard
from macer.runs.names import JOURNAL
from macer.smoothing.sequential import check_radius
from macer.system.progress import bar
from macer.system.text import shape_text


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A file's label, the radius it is certified for, and how it was found."""

    file: Path
    abstained: bool
    label: int | None  # None: abstained
    class_name: str | None
    radius: float  # rounded down to four decimals, as it is printed; 0 where abstained
    asked: float | None  # the one radius that was asked for
    sigma: float
    n0: int
    n: int
    drawn: int  # of the n
    alpha: float
    seed: int
    exact: bool
    precision: str

    def fields(self) -> tuple[str, ...]:
        """What a line says of it."""
        if self.class_name is not None:
            return (str(self.file), self.class_name, f"radius {self.radius:.4f}")
        shown = () if self.asked is None else (f"no label shown within {self.asked:g}",)
        return (str(self.file), "abstains", *shown)


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
    row_by_row: bool = False,
    device: torch.device,
    code: Collection[str] = (),
) -> Iterator[Prediction]:
    """The label and radius of each file, or an abstention.

    With a radius it is whether the label holds within it, mostly after few of the n samples.
    Where the target has certificates, the labels must come from the function that they speak of:
    the same weights in the same precision.

    Args:
        code: modules that the target's file may name, see `load_model`.
    """
    found, card = trained_target(str(target), code=code)
    check_settings(sigma=card.sigma, n0=n0, n=n, alpha=alpha, seed=seed)
    certify_one = certify
    if radius is not None:
        check_radius(radius, sigma=card.sigma, alpha=alpha, n_max=n)
        certify_one = partial(certify_at, radius=radius)
    precision = resolved(precision, device)
    model = prepare(found, precision=precision, row_by_row=row_by_row, device=device)
    if target.is_dir():
        _check_authority(target, model)
    images = [_image(path, card) for path in paths]
    for path, image in zip(paths, images, strict=True):
        with bar(f"labelling {path.name}", n0 + n, "samples", passing=True) as advance:
            [certificate] = certify_one(
                model.network,
                image[None].to(device),
                sigma=card.sigma,
                n0=n0,
                n=n,
                alpha=alpha,
                seed=seed,
                row_by_row=row_by_row,
                indices=[_number(image)],
                progress=advance,
            )
            advance.reach(n0 + n)
        abstained = certificate.label == ABSTAIN
        yield Prediction(
            file=path,
            abstained=abstained,
            label=None if abstained else certificate.label,
            class_name=None if abstained else card.classes[certificate.label],
            radius=float(rounded_down(certificate.radius, 4)),
            asked=radius,
            sigma=card.sigma,
            n0=n0,
            n=n,
            drawn=certificate.drawn,
            alpha=alpha,
            seed=seed,
            exact=image.dtype == torch.uint8,  # which gets exact noise
            precision=precision,
        )


def _check_authority(run: Path, model: PreparedModel) -> None:
    """Labels must come from the function that the certificates in the run speak of."""
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


def _image(path: Path, card: ModelCard) -> Tensor:
    """The file's pixels; the middle of it for a model that was trained on images of any size."""
    if not path.is_file():
        raise Mistake(f"no image at {path}: expected a PNG or JPEG file")
    data_set = DATASETS.get(card.dataset)
    any_size = data_set is not None and data_set.any_size
    image = read_middle(path) if any_size else read_image(path, channels=card.shape[0])
    if image.shape != card.shape:
        wanted, got = shape_text(card.shape), shape_text(image.shape)
        raise Mistake(f"{path} must be a {wanted} image for this model, got {got}; resize it")
    return torch.from_numpy(image.copy())  # Pillow's own pixels cannot be written to


def _number(image: Tensor) -> int:
    """A number that names the image's noise: the same image, the same answer."""
    return int.from_bytes(hashlib.sha256(image.numpy().tobytes()).digest()[:7], "little")
