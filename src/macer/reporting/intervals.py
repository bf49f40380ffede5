"""95% intervals of certified accuracy and of ACR, as estimates over images; and scores of classes.

An interval has its figure's expectation over the population that the images are a random sample
of, with probability 0.95 at least: of the certificates as they are made, false ones included.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from macer.reporting.logs import CertificateLog
from macer.reporting.scores import certified_counts
from macer.smoothing.confidence import (
    bernstein_lower,
    clopper_pearson_lower,
    clopper_pearson_upper,
)

SIDE = 0.025  # the level of each of an interval's two ends
PRINTED = 1.005  # other logs of the field have radii of three digits, rounded up or down

# What a table with intervals says below.
INTERVALS_NOTE = (
    "In parentheses: 95% intervals over the images, Clopper–Pearson's of an accuracy and empirical "
    "Bernstein's of ACR; ? where σ, n or α is not recorded."
)


class Interval(NamedTuple):
    """Two ends; with probability 0.05 at most, one of them is wrong."""

    low: float
    high: float


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class's images."""

    label: int
    name: str | None
    images: int
    accuracies: tuple[float, ...]
    accuracy_intervals: tuple[Interval, ...]
    acr: float


def share_intervals(counts: ArrayLike, images: int) -> tuple[Interval, ...]:
    """Clopper–Pearson's two-sided interval of each count's share of the images."""
    low = clopper_pearson_lower(counts, images, SIDE)
    high = clopper_pearson_upper(counts, images, SIDE)
    return tuple(map(Interval, low.tolist(), high.tolist()))


def radius_limit(sigma: float, n: int, alpha: float) -> float:
    """The largest radius that n samples can certify at level α, whatever the bound.

    R = σΦ⁻¹(α^{1/n})

    At a larger one, all n samples could be of the class with a probability above α while p_A is
    too small for that radius.
    """
    return sigma * -float(ndtri(-math.expm1(math.log(alpha) / n)))


def acr_interval(log: CertificateLog) -> Interval | None:
    """Empirical Bernstein's interval of ACR, without an assumption on how radii are distributed.

    X = radius · 1[predict = label] / R,  R = σΦ⁻¹(α^{1/n})
    R · (z̲(X), 1 − z̲(1 − X)),  z̲ of [Zhai+20, Appendix A, Thm. 3] at each side's level

    R is the largest radius, see `radius_limit`. None where R is not known, or exceeded, and for
    one image.
    """
    if log.sigma is None or log.n is None or log.alpha is None or len(log.idx) < 2:
        return None
    largest = radius_limit(log.sigma, log.n, log.alpha)
    radii = log.radius * log.correct
    if not radii.max() <= PRINTED * largest:
        return None
    x = np.minimum(radii / largest, 1.0)
    ends = [float(bernstein_lower(v.sum(), (v * v).sum(), len(v), SIDE)) for v in (x, 1 - x)]
    return Interval(largest * ends[0], largest * (1 - ends[1]))


def class_scores(log: CertificateLog, radii: ArrayLike) -> tuple[ClassScore, ...]:
    """The scores of each class that has images, in the order of labels."""
    return tuple(_class_score(log, int(label), radii) for label in np.unique(log.label))


def _class_score(log: CertificateLog, label: int, radii: ArrayLike) -> ClassScore:
    own = log.label == label
    radius, correct, images = log.radius[own], log.correct[own], int(own.sum())
    counts = certified_counts(radius[correct], radii)
    return ClassScore(
        label=label,
        name=log.class_names[label] if label < len(log.class_names) else None,
        images=images,
        accuracies=tuple((counts / images).tolist()),
        accuracy_intervals=share_intervals(counts, images),
        acr=float(np.mean(radius * correct)),
    )


def interval_text(interval: Interval | None) -> str:
    """An interval's ends, three decimals each, rounded outwards; ? where it is not known."""
    if interval is None:
        return "?"
    low, high = math.floor(interval.low * 1000), math.ceil(interval.high * 1000)
    return f"{low / 1000:.3f}–{high / 1000:.3f}"
