"""The leaderboard: methods of the field and ours on the same images, from figures that are stored.

entries.toml names the methods. figures.json has what was computed from logs that come with macer's
source, and figures-only.json what was computed from logs that may not be copied.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, TypeVar

from macer.reporting.scores import Difference
from macer.reporting.seeds import OverSeeds
from macer.runs.zoo import PREFIX
from macer.system.errors import Mistake

FOLDER = files("macer") / "assets" / "leaderboard"
FIGURES = ("figures.json", "figures-only.json")

ImageSet = Literal["every-5th", "all"]
IMAGES: Mapping[ImageSet, int] = {"every-5th": 5, "all": 1}  # every 5th test image, or every one
COUNT = 10_000  # test images of CIFAR-10
OURS = IMAGES["every-5th"]  # the images that our models are certified on

YOURS = "yours"  # the league of logs that a user named; they are no part of the leaderboard
REFERENCE = "macer"  # the method that differences are to, beside the best published one

# The field's settings, which every log here has.
SETTINGS: Mapping[str, Any] = {"n0": 100, "n": 100_000, "alpha": 0.001}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method at some σ: where its certificates come from, and how it was trained."""

    key: str
    name: str
    paper: str  # a key of docs/references.md; empty for our own
    network: str
    sigmas: tuple[float, ...]
    log: str  # file name or zoo:NAME, with SIGMA for σ
    source: str
    licence: str
    shipped: bool = True  # whether the log comes with the source
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)  # of training: σ, seed
    hardware: str = ""
    note: str = ""  # what a reader of its row must know

    @property
    def ours(self) -> bool:
        """Whether it is a model of the zoo."""
        return self.log.startswith(PREFIX)

    def log_at(self, sigma: float) -> str:
        """The name of its log at σ."""
        return self.at(self.log, sigma)

    def seconds_at(self, sigma: float, seed: int | None = 0) -> float | None:
        """Of the training with a seed; None where it is not known."""
        known = self.seconds.get(str(sigma), ())
        return known[seed] if seed is not None and seed < len(known) else None

    def at(self, text: str, sigma: float) -> str:
        """A text of the entry with σ in it, as the names of the zoo or the field write it."""
        return text.replace("SIGMA", f"{sigma:.2f}" if self.ours else str(sigma))


@dataclass(frozen=True)
class OtherLeague:
    """A model with more data, more networks or other noise: figures as published, not ranked."""

    name: str
    paper: str
    league: str
    figures: str
    conditions: str
    beside: str  # what ours has under such conditions
    source: str


class Reading(NamedTuple):
    """ACR by another bound, chosen after the counts were drawn."""

    acr: float
    standard_error: float


@dataclass(frozen=True)
class Score:
    """The figures of one log over some images; accuracies are at the radii of RADII."""

    sigma: float
    images: ImageSet
    method: str
    acr: float
    standard_error: float
    accuracies: tuple[float, ...]
    runner_up: Reading | None


@dataclass(frozen=True)
class Seeds:
    """All trainings of one of our recipes, of which a row is one."""

    mean: OverSeeds
    runner_up: Reading  # the mean by the other bound
    zoo: int | None  # the seed whose model the zoo has, which the row is of
    to_best: Difference  # of the mean, to the best published log


@dataclass(frozen=True)
class Rank:
    """A row of a board; None where a difference would be to itself or a figure is not known."""

    rank: int
    method: str
    name: str
    acr: float
    standard_error: float
    runner_up: Reading | None  # not a certificate at level α
    accuracies: tuple[float, ...]
    to_reference: Difference | None
    to_best: Difference | None
    seconds: float | None
    hardware: str | None
    network: str
    paper: str | None
    source: str
    licence: str | None
    figures_only: bool
    load: str | None  # the model's name for every command and `macer.load_model`
    note: str | None
    over_seeds: Seeds | None  # None for what others trained
    league: str = "single model"

    @property
    def yours(self) -> bool:
        """Whether it is of a log that a user named."""
        return self.league == YOURS


Scored = TypeVar("Scored", Score, Rank)


@dataclass(frozen=True)
class Board:
    """The methods at one σ on the same images, the largest ACR first."""

    sigma: float
    images: ImageSet
    count: int
    n0: int
    n: int
    alpha: float
    reference: str
    best: str  # the published method with the largest ACR
    rows: tuple[Rank, ...]


@cache
def entries() -> tuple[Entry, ...]:
    """The methods, in the order of their file."""
    return tuple(
        Entry(**{**entry, "sigmas": tuple(entry["sigmas"])}) for entry in _content()["methods"]
    )


@cache
def other_leagues() -> tuple[OtherLeague, ...]:
    """Models that are not ranked with the others."""
    return tuple(OtherLeague(**entry) for entry in _content()["others"])


def sigmas() -> list[float]:
    """Every σ that a method has a log of."""
    return sorted({sigma for entry in entries() for sigma in entry.sigmas})


def check_sigma(sigma: float | None) -> None:
    """Refuse a σ that has no board."""
    known = sigmas()
    if sigma is not None and sigma not in known:
        choice = ", ".join(f"{level:g}" for level in known)
        raise Mistake(f"sigma must be one of {choice}, got {sigma:g}")


def boards(sigma: float | None = None, images: ImageSet | Literal["both"] = "both") -> list[Board]:
    """The boards of every σ, or of one; those of every 5th image first."""
    check_sigma(sigma)
    kinds = [kind for kind in IMAGES if images in (kind, "both")]
    return [board(level, kind) for kind in kinds for level in sigmas() if sigma in (None, level)]


def board(sigma: float, images: ImageSet) -> Board:
    """The methods that have logs of these images, ranked."""
    here = {entry.key: entry for entry in entries() if sigma in entry.sigmas}
    scores = [score for score in _scores() if (score.sigma, score.images) == (sigma, images)]
    published = [score for score in scores if not here[score.method].ours]
    best = max(published, key=lambda score: score.acr).method
    rows = [
        _row(place, score, here[score.method], best)
        for place, score in ranked(scores, {key: entry.name for key, entry in here.items()})
    ]
    return Board(
        sigma=sigma,
        images=images,
        count=COUNT // IMAGES[images],
        **SETTINGS,
        reference=REFERENCE,
        best=best,
        rows=tuple(rows),
    )


def ranked(scores: Sequence[Scored], names: Mapping[str, str]) -> list[tuple[int, Scored]]:
    """The scores with their ranks, the largest ACR first.

    Methods whose ACRs have the same three decimals share a rank and stand by their names.
    """
    ordered = sorted(scores, key=lambda score: (-round(score.acr, 3), names[score.method].lower()))
    shown = [round(score.acr, 3) for score in ordered]
    return [(shown.index(acr) + 1, score) for acr, score in zip(shown, ordered, strict=True)]


def _row(place: int, score: Score, entry: Entry, best: str) -> Rank:
    at = (score.sigma, score.images)
    seeds = seeds_of(entry.key, score.sigma, best) if entry.ours else None
    return Rank(
        rank=place,
        method=entry.key,
        name=entry.name,
        acr=score.acr,
        standard_error=score.standard_error,
        runner_up=score.runner_up,
        accuracies=score.accuracies,
        to_reference=_difference(*at, entry.key, REFERENCE),
        to_best=_difference(*at, entry.key, best),
        seconds=entry.seconds_at(score.sigma, seeds.zoo if seeds else 0),
        hardware=entry.hardware or None,
        network=entry.network,
        paper=entry.paper or None,
        source=entry.at(entry.source, score.sigma),
        licence=entry.licence or None,
        figures_only=not entry.shipped,
        load=entry.log_at(score.sigma) if entry.ours else None,
        note=entry.note or None,
        over_seeds=seeds,
    )


def seeds_of(key: str, sigma: float, best: str) -> Seeds:
    """The trainings of a recipe of ours, with the difference of their mean to a published log."""
    at = (key, sigma)
    [found] = [one for one in _figures()[0]["seeds"] if (one["method"], one["sigma"]) == at]
    mean = found["mean"]
    gains = [one for stored in _figures() for one in stored["seed_differences"]]
    [gain] = [one for one in gains if (one["a"], one["sigma"], one["b"]) == (*at, best)]
    return Seeds(
        mean=OverSeeds(**{**mean, "seeds": tuple(mean["seeds"]), "acrs": tuple(mean["acrs"])}),
        runner_up=Reading(*found["runner_up"]),
        zoo=found["zoo"],
        to_best=Difference(gain["difference"], gain["standard_error"], COUNT // OURS),
    )


def _difference(sigma: float, images: ImageSet, a: str, b: str) -> Difference | None:
    """ACR(a) − ACR(b), paired; each pair of methods is stored in one of its two orders.

    None for a pair that is not: it takes both logs, and a new entry may come without the others'.
    """
    known, count = _differences(), COUNT // IMAGES[images]
    for (first, second), sign in (((a, b), 1), ((b, a), -1)):
        if (sigma, images, first, second) in known:
            gain, error = known[sigma, images, first, second]
            return Difference(sign * gain, error, count)
    return None


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "entries.toml").read_text("utf-8"))


@cache
def _figures() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((FOLDER / name).read_text("utf-8")) for name in FIGURES)


def _scores() -> list[Score]:
    return [_score(entry) for figures in _figures() for entry in figures["scores"]]


def _score(entry: Mapping[str, Any]) -> Score:
    reading = entry["runner_up"] and Reading(*entry["runner_up"])
    return Score(**{**entry, "accuracies": tuple(entry["accuracies"]), "runner_up": reading})


@cache
def _differences() -> dict[tuple[float, str, str, str], tuple[float, float]]:
    return {
        (entry["sigma"], entry["images"], entry["a"], entry["b"]): (
            entry["difference"],
            entry["standard_error"],
        )
        for figures in _figures()
        for entry in figures["differences"]
    }
