"""A log's verdict at one radius: the gate's lower bound of robust accuracy, in one sentence.

The radius is fixed by something other than the results: the noise level σ, or whoever asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from macer.certification.table import rounded_down
from macer.reporting.gate import Build, ClassBound, certified_at, class_bounds
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import given_up, outcomes
from macer.reporting.tables import asked_images

CONFIDENCE = 0.95
USUAL_RADIUS = 0.5  # the field's, where no log records σ
ASKED_FOR = "the one that was asked for (--radius)"


@dataclass(frozen=True)
class Verdict:
    """What certificates show at one radius."""

    name: str
    sentence: str
    radius: float
    radius_chosen: str  # by what
    confidence: float
    lower: float | None  # of robust accuracy, at this confidence; None: it cannot be known
    certified: int  # images with their right label at the radius
    correct: int  # images with their right label, at any radius
    wrong: int
    abstained: int
    images: int


@dataclass(frozen=True)
class ClassVerdict:
    """What certificates show of one class at the radius."""

    label: int
    name: str | None
    images: int
    certified: int
    lower: float | None  # each on its own at the verdict's confidence
    given_up: bool


def chosen_radius(logs: Sequence[CertificateLog], given: float | None) -> tuple[float, str]:
    """The radius of verdicts, and how it was chosen: never by the results."""
    if given is not None:
        return given, ASKED_FOR
    sigmas = {log.sigma for log in logs if log.sigma is not None}
    if not sigmas:
        return USUAL_RADIUS, "the usual one, since no log records σ"
    if len(sigmas) > 1:
        return min(sigmas), "the smallest noise level σ, set before anything was certified"
    return sigmas.pop(), "the noise level σ, set before anything was certified"


def verdicts(logs: Sequence[CertificateLog], radius: float | None = None) -> list[Verdict]:
    """The verdict of each log, all at one radius."""
    at, chosen = chosen_radius(logs, radius)
    return [_verdict(log, at, chosen) for log in logs]


def _verdict(log: CertificateLog, radius: float, chosen: str) -> Verdict:
    certified, images = int(certified_at(log, radius).sum()), len(log.idx)
    build = _build(log, radius)
    lower = None if build is None else float(build.lower(certified, images))
    return Verdict(
        name=log.name,
        sentence=_sentence(log, radius, lower),
        radius=radius,
        radius_chosen=chosen,
        confidence=CONFIDENCE,
        lower=lower,
        certified=certified,
        **outcomes(log),
        images=images,
    )


def _build(log: CertificateLog, radius: float) -> Build | None:
    """The log for the gate's bounds; None where the level of its certificates is not known."""
    if log.alpha is None or log.level == "chosen":
        return None
    return Build(log, radius, alpha=log.alpha, level=1 - CONFIDENCE)


def class_verdicts(log: CertificateLog, radius: float) -> list[ClassVerdict]:
    """The classes at the radius; of a log whose level is not known, without bounds."""
    known = _build(log, radius)
    lost = {gone.label for gone in given_up(log)}
    bounds = class_bounds(known or Build(log, radius, alpha=0.5, level=0.5))
    return [_class_verdict(bound, known is not None, bound.label in lost) for bound in bounds]


def _class_verdict(bound: ClassBound, known: bool, lost: bool) -> ClassVerdict:
    lower = bound.lower if known else None
    return ClassVerdict(bound.label, bound.name, bound.images, bound.certified, lower, lost)


def _sentence(log: CertificateLog, radius: float, lower: float | None) -> str:
    """The verdict in words; a share is rounded down."""
    length = length_text(radius)
    if lower is None:
        return (
            f"Nothing follows for other images at ℓ₂ {length}: {_unknown_level(log)}, and so "
            "these certificates bound nothing."
        )
    if lower < 0.001:  # share_text would round it down to 0.0%
        what, bound = ("hardly any", "below 0.1%") if lower else ("no", "0%")
        return (
            f"These certificates show {what} robustness at ℓ₂ {length}: the lower bound is {bound}."
        )
    where = ", in real arithmetic" if log.noise == "ordinary" else ""
    return (
        f"With {100 * CONFIDENCE:g}% confidence, at least {share_text(lower)} of images like these "
        "get their right label from the smoothed classifier and keep it under every change of ℓ₂ "
        f"length below {length}{where}{_reservation(log)}."
    )


def _unknown_level(log: CertificateLog) -> str:
    if log.level == "chosen":
        return "the level α was chosen after the samples were drawn"
    return "the log does not record the level α of its certificates"


def _reservation(log: CertificateLog) -> str:
    """What the sentence must not leave out: images that are missing, or no test images."""
    asked, images = asked_images(log), len(log.idx)
    missing = (
        f"; not finished: {images:,} of {asked:,} images" if asked not in (None, images) else ""
    )
    return f"{'; of training images that were held out' if log.split == 'train' else ''}{missing}"


def length_text(radius: float) -> str:
    """A radius in all its digits: a rounded one could be larger than what was certified."""
    return f"{radius:.15g}"


def share_text(share: float) -> str:
    """A share in percent, rounded down to one decimal."""
    return f"{rounded_down(100 * share, 1)}%"
