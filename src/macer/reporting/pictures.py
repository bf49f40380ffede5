"""Pictures of what a radius means: an image, a noisy copy, and changes of that length."""

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macer.certification.certificate import ABSTAIN
from macer.certification.table import rounded_down
from macer.data.png import png_file
from macer.reporting.classes import class_text
from macer.reporting.evidence import Source
from macer.reporting.verdict import length_text
from macer.runs.names import JOURNAL, MODEL
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from macer.data.split import Split

Pixels = NDArray[np.float64]

MOST_ROWS = 4
PATCH = 4  # sides of the square that a concentrated change fills, in pixels


@dataclass(frozen=True)
class Picture:
    """A picture as an address that holds all of it."""

    data: str
    caption: str


@dataclass(frozen=True)
class PictureRow:
    """One image: as it is, noisy, and changed."""

    title: str
    pictures: tuple[Picture, ...]


def pictures(
    run: Source,
    data: Path,
    radius: float,
    *,
    code: Collection[str] = (),
    attack: Path | None = None,
) -> list[PictureRow]:
    """Rows of pictures: the first counted image of each of the first few classes.

    Args:
        code: modules that the journal or the model file may name.
        attack: the run whose model is attacked for one more picture of each image.
    """
    from macer.data.fingerprint import fingerprint

    header = run.header
    split = _images(run, data, code)
    if fingerprint(split) != header.data_sha256:
        raise Mistake(
            f"data must be those that the certificates of {run.log.name} are of, got others in "
            f"{data}; their SHA-256 differs"
        )
    chosen = _chosen(run)
    images = np.asarray(split.images[[idx for _, idx in chosen]])
    rows = [
        PictureRow(_title(run, place, split.image(idx)), _row(image, header.sigma, radius, idx))
        for (place, idx), image in zip(chosen, images, strict=True)
    ]
    if attack is None:
        return rows
    last = _attacks(run, attack, images, [place for place, _ in chosen], radius, code)
    return [
        PictureRow(row.title, (*row.pictures, one)) for row, one in zip(rows, last, strict=True)
    ]


def _attacks(
    run: Source,
    path: Path,
    images: NDArray[np.uint8],
    places: Sequence[int],
    radius: float,
    code: Collection[str],
) -> list[Picture]:
    """An attack of the radius' length on each image, with what is answered then."""
    from macer.reporting.attacked import attacked, outcome  # loads torch

    log = run.log
    answers = [int(log.label[i] if log.predict[i] == ABSTAIN else log.predict[i]) for i in places]
    found = attacked(run, path, images, answers, radius, code=code)
    return [
        _picture(
            one.pixels / 255.0,
            f"an attack of ℓ₂ length {length_text(radius)}: "
            + outcome(before, one.answer, class_text(one.answer, log.class_names)),
        )
        for before, one in zip(answers, found, strict=True)
    ]


def _images(run: Source, data: Path, code: Collection[str]) -> "Split":
    """The images that the journal names; their SHA-256 tells whether damaged ones were left out."""
    from macer.data.sets import Rules, load  # loads rich
    from macer.data.split import ARRAYS
    from macer.system.user_code import names_a_function

    name, part, home = run.header.dataset, run.header.split, None
    if name == ARRAYS:
        raise Mistake(f"data must be left out for {run.log.name}, whose images came from Python")
    if names_a_function(name):
        from macer.runs.data_code import data_home  # loads torch

        home = data_home(name, run.folder / MODEL, code=code, source=run.folder / JOURNAL)
    rules = Rules(skip_damaged=True, duplicates="ignore")
    return load(name, part, data, rules=rules, home=home)


def _chosen(run: Source) -> list[tuple[int, int]]:
    """The first image of each of the first classes: its place in the log, and its number."""
    _, places = np.unique(run.log.label, return_index=True)
    return [(int(place), int(run.log.idx[place])) for place in places[:MOST_ROWS]]


def _title(run: Source, place: int, image: str) -> str:
    log = run.log
    label, predict = int(log.label[place]), int(log.predict[place])
    what = class_text(label, log.class_names)
    if predict == ABSTAIN:
        outcome = "no certificate: it abstained or was not estimated"
    elif predict != label:
        outcome = f"answered as class {class_text(predict, log.class_names)}, which is wrong"
    else:
        outcome = f"right, certified radius {rounded_down(log.radius[place], 3)}"
    return f"{image[0].upper()}{image[1:]}, class {what}: {outcome}"


def _row(image: NDArray[np.uint8], sigma: float, radius: float, seed: int) -> tuple[Picture, ...]:
    x = image / 255.0
    random = np.random.default_rng(seed)
    return (
        _picture(x, "the image"),
        _picture(
            x + noise(x, sigma, random), f"one noisy copy, σ = {sigma:g}: the network sees many"
        ),
        _picture(
            x + spread(x, radius, random), f"a random change of ℓ₂ length {length_text(radius)}"
        ),
        _picture(x + patch(x, radius), f"the same length in {PATCH} × {PATCH} pixels"),
    )


def noise(x: Pixels, sigma: float, random: np.random.Generator) -> Pixels:
    """Gaussian noise of standard deviation σ."""
    return sigma * random.standard_normal(x.shape)


def spread(x: Pixels, radius: float, random: np.random.Generator) -> Pixels:
    """A change of ℓ₂ length `radius` in a random direction."""
    change = random.standard_normal(x.shape)
    return np.asarray(radius * change / np.linalg.norm(change))


def patch(x: Pixels, radius: float) -> Pixels:
    """A change of ℓ₂ length `radius`, equal in a square in the middle: to dark if that is light."""
    change = np.zeros_like(x)
    top, left = ((side - PATCH) // 2 for side in x.shape[1:])
    inside = (slice(None), slice(max(top, 0), top + PATCH), slice(max(left, 0), left + PATCH))
    change[inside] = -1.0 if x[inside].mean() > 0.5 else 1.0
    return np.asarray(radius * change / np.linalg.norm(change))


def _picture(x: Pixels, caption: str) -> Picture:
    """Values below 0 and above 1 are shown as black and white."""
    file = png_file(np.round(np.clip(x, 0, 1) * 255).astype(np.uint8), smallest=True)
    return Picture("data:image/png;base64," + base64.b64encode(file).decode(), caption)
