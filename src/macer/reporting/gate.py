"""A gate: requirements of certified accuracy at one radius, each decided by a lower bound.

What the confidence is over: the images are a random sample of a population, and the noise of their
certificates is random too. Let q be the probability that an image of the population is certified
with its right label at the radius r, as these certificates are made, and let the robust accuracy ρ
be the probability that the smoothed classifier returns the right label at an image and everywhere
within r of it. An image that is not robust is certified with probability α at most, so that

q ≤ ρ + (1 − ρ)α,  hence  ρ ≥ (q − α)/(1 − α)

A requirement passes if a lower bound at the gate's confidence is at least what is required. The
gate passes if all of its requirements do. If one of them is false of the population, the gate
passes only if that one does, which has probability 1 − confidence at most: the level is not shared
among requirements, nor among classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macer.certification.table import rounded_down
from macer.reporting.classes import class_text
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import common_images
from macer.reporting.tables import images_of_log
from macer.reporting.texts import thousands, with_noun
from macer.smoothing.confidence import Floats, clopper_pearson_lower, clopper_pearson_upper
from macer.system.errors import Mistake

# This share of the level bounds how many images are lost. The rest bounds how they compare with the
# gained ones, which matters more if builds differ in many images.
_LOST_SHARE = 0.1

# A table has radii rounded down to six decimals.
_PRINTED = 1e-6


@dataclass(frozen=True)
class Requirement:
    """One requirement of a gate, and the lower bound that decides it."""

    name: str
    passed: bool
    required: float
    lower: float  # at the gate's confidence
    estimate: float  # of these images alone
    images: int
    line: str  # the same in words


def _decided(
    name: str, required: float, lower: float, estimate: float, images: int, line: str
) -> Requirement:
    """A requirement that passes if its lower bound is at least what is required."""
    return Requirement(name, lower >= required, required, lower, estimate, images, line)


@dataclass(frozen=True)
class ClassBound:
    """A class's certified images, and the lower bound of its robust accuracy."""

    label: int
    name: str | None
    images: int
    certified: int
    lower: float  # each on its own at the gate's confidence; the least of them for all together


def robust_lower(certified: ArrayLike, images: ArrayLike, alpha: float, level: float) -> Floats:
    """Lower bound of the robust accuracy ρ at confidence 1 − level; 0 for no image.

    q̲ = Clopper–Pearson's lower bound of q, one-sided, of `certified` images among all
    ρ̲ = max((q̲ − α)/(1 − α), 0)
    """
    q = clopper_pearson_lower(certified, images, level)
    lower: Floats = np.maximum((q - alpha) / (1 - alpha), 0.0)
    return lower


def difference_lower(gained: ArrayLike, lost: ArrayLike, images: int, level: float) -> Floats:
    """Lower bound, at most 0, of the difference of two builds' q at confidence 1 − level.

    p̄ = Clopper–Pearson's upper bound at level 0.1·level of `lost` among all images
    θ̲ = Clopper–Pearson's lower bound at level 0.9·level of `gained` among gained + lost
    Δ̲ = −p̄ · max(1 − θ̲/(1 − θ̲), 0)

    An image is gained if only the new build certifies it, lost if only the baseline does. Let p₁₀
    and p₀₁ be the probabilities of these, Δ = p₁₀ − p₀₁ the difference of the two builds' q, and
    θ = p₁₀/(p₁₀ + p₀₁). The lost images have the binomial distribution of p₀₁, so that p₀₁ > p̄
    has probability 0.1·level at most. Given gained + lost, the gained images have the binomial
    distribution of θ, so that θ < θ̲ has probability 0.9·level at most for each such sum, and
    therefore in all. Where neither happens, p₁₀/p₀₁ = θ/(1 − θ) ≥ θ̲/(1 − θ̲), and so
    Δ = −p₀₁(1 − p₁₀/p₀₁) ≥ Δ̲; for p₀₁ = 0, Δ ≥ 0. Δ < Δ̲ has probability `level` at most.
    """
    differing = np.asarray(gained) + np.asarray(lost)
    theta = clopper_pearson_lower(gained, differing, (1 - _LOST_SHARE) * level)
    p = clopper_pearson_upper(lost, images, _LOST_SHARE * level)
    lower: Floats = -p * np.maximum((1 - 2 * theta) / (1 - theta), 0.0)
    return lower


@dataclass(frozen=True)
class Build:
    """A log to be judged at a radius, the level α of its certificates, and that of the gate."""

    log: CertificateLog
    radius: float
    alpha: float
    level: float  # 1 − confidence

    def __post_init__(self) -> None:
        certified_at(self.log, self.radius)

    @property
    def certified(self) -> NDArray[np.bool_]:
        """Which images are certified with their right label at the radius."""
        return certified_at(self.log, self.radius)

    def lower(self, certified: ArrayLike, images: ArrayLike) -> Floats:
        """The bound of robust accuracy for so many certified among so many images."""
        return robust_lower(certified, images, self.alpha, self.level)


def certified_at(log: CertificateLog, radius: float) -> NDArray[np.bool_]:
    """Which images of a log are certified with their right label at the radius.

    Certificates of one radius are certificates of every smaller one.
    """
    if not (math.isfinite(radius) and radius >= 0):
        raise Mistake(f"radius must be a number ≥ 0, got {radius}")
    if log.at is None:
        return log.correct & (log.radius >= radius)
    if radius > log.at:
        raise Mistake(
            f"radius must be at most {log.at:g}, that of the certificates of {log.name}, got "
            f"{radius:g}; certify without --radius, or with a larger one"
        )
    return log.correct & (log.radius > log.at - _PRINTED)


def accuracy(build: Build, at_least: float) -> Requirement:
    """Robust accuracy at the radius must be at least so much."""
    images, certified = len(build.log.idx), int(build.certified.sum())
    lower = float(build.lower(certified, images))
    line = (
        f"robust accuracy at radius {build.radius:.15g} is at least {_down(lower)}, required "
        f"{at_least:g}; {certified:,} of {images:,} images are certified, "
        f"{_needed(build, at_least)}"
    )
    return _decided("accuracy", at_least, lower, certified / images, images, line)


def _needed(build: Build, at_least: float) -> str:
    """How many certified images would pass."""
    images = len(build.log.idx)
    passing = build.lower(np.arange(images + 1), images) >= at_least
    if not passing[-1]:
        return "and all of them would be too few: certify more images"
    return f"{int(np.argmax(passing)):,} are needed"


def class_bounds(build: Build) -> list[ClassBound]:
    """The classes' bounds; that of a class without images is 0.

    Each holds on its own with probability 1 − level. The least of them is with this probability
    a lower bound for all classes together: it is at most the bound of the class whose robust
    accuracy is lowest, and that one holds with this probability.
    """
    log = build.log
    classes = max(log.classes or 0, int(log.label.max()) + 1)
    images = np.bincount(log.label, minlength=classes)
    certified = np.bincount(log.label[build.certified], minlength=classes)
    lower = build.lower(certified, images)
    listed = range(classes) if log.classes else np.flatnonzero(images).tolist()
    return [
        ClassBound(
            label,
            log.class_names[label] if label < len(log.class_names) else None,
            int(images[label]),
            int(certified[label]),
            float(lower[label]),
        )
        for label in listed
    ]


def worst_class(build: Build, bounds: Sequence[ClassBound], at_least: float) -> Requirement:
    """Robust accuracy of every class at the radius must be at least so much."""
    worst, names = min(bounds, key=lambda bound: bound.lower), build.log.class_names
    failing = [class_text(bound.label, names) for bound in bounds if bound.lower < at_least]
    others = f" and {len(failing) - 10} others" if len(failing) > 10 else ""
    line = (
        f"robust accuracy at radius {build.radius:.15g} of every class is at least "
        f"{_down(worst.lower)}, required {at_least:g}; the worst is class "
        f"{class_text(worst.label, names)} with {worst.certified:,} of {worst.images:,} images "
        f"certified{'; below that: ' if failing else ''}{', '.join(failing[:10])}{others}"
    )
    estimate = min(bound.certified / max(bound.images, 1) for bound in bounds)
    return _decided("worst class", at_least, worst.lower, estimate, worst.images, line)


def not_worse(build: Build, baseline: CertificateLog, not_worse_by: float) -> Requirement:
    """Certified accuracy at the radius must not be below the baseline's by more than so much.

    This is of certified accuracies, each as its certificates are made: nothing bounds the true
    robust accuracy of the baseline from above. So both must have the same α.
    """
    radius = build.radius
    if baseline.at not in (None, radius):
        raise Mistake(
            f"baseline must be certified at radius {radius:g} or without --radius, got "
            f"{baseline.at:g}; at another radius its certificates would understate it"
        )
    here, there = common_images(build.log, baseline)
    new, old = build.certified[here], certified_at(baseline, radius)[there]
    gained, lost, images = int(np.sum(new & ~old)), int(np.sum(old & ~new)), len(new)
    lower = float(difference_lower(gained, lost, images, build.level))
    line = (
        f"certified accuracy at radius {radius:.15g} is not below that of {baseline.name} by more "
        f"than {_up(-lower)}, allowed {not_worse_by:g}; of {images:,} common images {gained:,} are "
        f"gained and {lost:,} lost"
    )
    return _decided("baseline", -not_worse_by, lower, (gained - lost) / images, images, line)


def notes(build: Build) -> list[str]:
    """What to know when reading a gate's result."""
    log = build.log
    images = with_noun(images_of_log(log))
    noted = [
        f"{log.name}: {images}, n = {thousands(log.n)}, α = {build.alpha:g}.",
        f"Confidence {1 - build.level:g} is over images and noise: if a requirement is false of "
        "the population that these images are a random sample of, the gate passes with "
        f"probability {build.level:.3g} at most.",
    ]
    if log.asked is not None and len(np.setdiff1d(log.asked, log.idx)):
        noted.append(f"{log.name} is not finished; this is of the certificates that are there.")
    if log.noise == "ordinary":
        noted.append(
            f"Ordinary noise: the certificates of {log.name} hold for real arithmetic, not for "
            "floating point."
        )
    return noted


def baseline_notes(log: CertificateLog, baseline: CertificateLog) -> list[str]:
    """In which settings two logs differ that certified accuracy depends on."""
    names = ("sigma", "n0", "n", "bound", "noise", "at")
    differing = [name for name in names if getattr(log, name) != getattr(baseline, name)]
    if not differing:
        return []
    return [
        f"{log.name} and {baseline.name} differ in {', '.join(differing)}, on which certified "
        "accuracy depends beside the model."
    ]


def _down(value: float) -> str:
    return rounded_down(value, 4)


def _up(value: float) -> str:
    return f"{math.ceil(value * 10_000) / 10_000:.4f}"
