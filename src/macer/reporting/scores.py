"""Certified accuracy and average certified radius of logs, and their paired difference."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macer.reporting.logs import CertificateLog, describe_images
from macer.smoothing.confidence import Floats
from macer.system.errors import Mistake

Places = NDArray[np.intp]


def average_certified_radius(log: CertificateLog) -> float:
    """Average certified radius; a wrong prediction and an abstention contribute 0.

    ACR = 1/m · Σ radius · 1[predict = label]                            [Zhai+20, Sec. 5]
    """
    return float(np.mean(log.radius * log.correct))


def standard_error(log: CertificateLog) -> float:
    """Standard error of ACR as an estimate over images; NaN for a single image."""
    return error_of_mean(log.radius * log.correct)


def certified_accuracy(log: CertificateLog, radii: ArrayLike) -> Floats:
    """Fraction of images classified correctly with a radius of at least r, for each r.

    accuracy(r) = 1/m · Σ 1[predict = label and radius ≥ r]
    """
    counts = certified_counts(log.radius[log.correct], radii)
    return np.asarray(counts / len(log.idx), np.float64)


def certified_counts(certified: Floats, radii: ArrayLike) -> NDArray[np.intp]:
    """How many of the certified radii are at least r, for each r."""
    below = np.searchsorted(np.sort(certified), np.asarray(radii, np.float64), side="left")
    return np.asarray(len(certified) - below)


class Difference(NamedTuple):
    """ACR of one log minus that of another, over the images that both certify."""

    difference: float
    standard_error: float
    images: int


def paired_difference(a: CertificateLog, b: CertificateLog) -> Difference:
    """ACR(a) − ACR(b) over their common images, with the standard error of the paired mean."""
    in_a, in_b = common_images(a, b)
    gain = (a.radius * a.correct)[in_a] - (b.radius * b.correct)[in_b]
    return Difference(float(np.mean(gain)), error_of_mean(gain), len(in_a))


def common_images(a: CertificateLog, b: CertificateLog) -> tuple[Places, Places]:
    """The places in two logs of the images that both have; they must be of one data set."""
    common, in_a, in_b = np.intersect1d(a.idx, b.idx, return_indices=True)
    if not len(common) or a.split != b.split:
        raise Mistake(
            f"{a.name} and {b.name} must have images in common, got {describe_images(a)} "
            f"and {describe_images(b)}: certify the same images"
        )
    disagree = common[a.label[in_a] != b.label[in_b]]
    if len(disagree):
        raise Mistake(
            f"{a.name} and {b.name} must have the same labels, got different ones for "
            f"{len(disagree):,} of {len(common):,} images, first idx {disagree[0]}: "
            "compare logs of one data set"
        )
    if None not in (a.data_sha256, b.data_sha256) and a.data_sha256 != b.data_sha256:
        raise Mistake(
            f"{a.name} and {b.name} must be of the same data, got {_data(a)} and {_data(b)}: "
            "certify the same images"
        )
    return in_a, in_b


def _data(log: CertificateLog) -> str:
    return f"{log.dataset} of SHA-256 {str(log.data_sha256)[:16]}…"


def usual_radii(logs: Sequence[CertificateLog]) -> tuple[float, ...]:
    """0, 0.25, 0.5 … up to the largest certified radius; wider steps above 2.5, 5 …"""
    largest = max((float(np.max(log.radius * log.correct)) for log in logs), default=0.0)
    step = 0.25
    while largest > 10 * step:
        step *= 2
    return tuple(step * i for i in range(int(largest / step) + 1))


def curve(log: CertificateLog) -> tuple[Floats, Floats]:
    """The radius–accuracy curve as knots (x, y): accuracy is y[i] on (x[i−1], x[i]].

    Its area Σ (x[i] − x[i−1]) · y[i] is ACR.
    """
    x = np.unique(np.append(log.radius[log.correct], 0.0))
    y = certified_accuracy(log, x)
    return np.append(x, x[-1]), np.append(y, 0.0)


def outcomes(log: CertificateLog) -> dict[str, int]:
    """How many images were classified correctly, wrongly, and not at all.

    An image that --score did not estimate counts as wrong, since its selected class was.
    """
    estimated = True if log.estimated is None else log.estimated
    abstained = int(np.sum((log.predict == -1) & estimated))
    correct = int(np.sum(log.correct))
    wrong = len(log.idx) - correct - abstained
    return {"correct": correct, "wrong": wrong, "abstained": abstained}


class GivenUp(NamedTuple):
    """A class whose images are hardly ever classified correctly."""

    label: int
    correct: int
    images: int


def given_up(log: CertificateLog) -> list[GivenUp]:
    """The classes with fewer than one image in twenty correct, if they have at least twenty.

    Two classes that look alike cost each other radius. So ACR can rise when a model classifies
    all images of both as one of them.
    """
    labels, which = np.unique(log.label, return_inverse=True)
    images, correct = np.bincount(which), np.bincount(which, weights=log.correct)
    return [
        GivenUp(int(label), int(right), int(count))
        for label, right, count in zip(labels, correct, images, strict=True)
        if count >= 20 and right < count / 20
    ]


def error_of_mean(values: Floats) -> float:
    """Standard error of a mean over images: s/√m, where s² = Σ (v − v̄)² / (m − 1)."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
