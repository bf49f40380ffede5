"""Pictures of what a radius means: an image, a noisy copy, and changes of that length."""

import base64
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macer.certification.certificate import ABSTAIN
from macer.certification.table import rounded_down
from macer.data.png import png_file
from macer.reporting.classes import class_text
from macer.reporting.evidence import Source
from macer.reporting.verdict import length_text
from macer.system.errors import Mistake

Pixels = NDArray[np.float64]

MOST_ROWS = 4
PATCH = 4  # sides of the square that a concentrated change fills, in pixels


@dataclass(frozen=True)
class Picture:
    """A picture as an address that holds all of it."""

    data: str
    caption: str


@dataclass(frozen=True)
class Row:
    """One image: as it is, noisy, and changed."""

    title: str
    pictures: tuple[Picture, ...]


def pictures(run: Source, data: Path, radius: float) -> list[Row]:
    """Rows of pictures: the first counted image of each of the first few classes."""
    from macer.data.fingerprint import fingerprint
    from macer.data.sets import load  # loads rich

    header = run.header
    split = load(header.dataset, header.split, data)
    if fingerprint(split) != header.data_sha256:
        raise Mistake(
            f"data must be those that the certificates of {run.log.name} are of, got others in "
            f"{data}; their SHA-256 differs"
        )
    return [
        Row(_title(run, place), _row(np.asarray(split.images[[idx]])[0], header.sigma, radius, idx))
        for place, idx in _chosen(run)
    ]


def _chosen(run: Source) -> list[tuple[int, int]]:
    """The first image of each of the first classes: its place in the log, and its number."""
    _, places = np.unique(run.log.label, return_index=True)
    return [(int(place), int(run.log.idx[place])) for place in places[:MOST_ROWS]]


def _title(run: Source, place: int) -> str:
    log = run.log
    label, predict = int(log.label[place]), int(log.predict[place])
    what = class_text(label, log.class_names)
    if predict == ABSTAIN:
        outcome = "no certificate: it abstained or was not estimated"
    elif predict != label:
        outcome = f"answered as class {class_text(predict, log.class_names)}, which is wrong"
    else:
        outcome = f"right, certified radius {rounded_down(log.radius[place], 3)}"
    return f"Image {log.idx[place]}, class {what}: {outcome}"


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
