"""Certificates of one radius: how many images are robust there."""

from typing import NamedTuple

from macer.certification.certificate import ABSTAIN
from macer.certification.journal import Contents
from macer.reporting.intervals import Interval, share_intervals


class AtRadius(NamedTuple):
    """How many images of a journal are robust at its radius, and how many samples that took."""

    radius: float
    images: int
    robust: int
    correct: int  # of the robust ones
    n: int
    samples: float  # drawn per image, on average
    interval: Interval | None  # of correct / images; None for no image

    def line(self) -> str:
        """The figures in words."""
        if not self.images:
            return f"radius {self.radius:.15g}: no image yet"
        return (
            f"radius {self.radius:.15g}: {self.robust} of {self.images} images are robust, "
            f"{self.correct} of them with the right label ({self.correct / self.images:.4f}); "
            f"{self.samples:,.0f} samples per image, "
            f"{self.n / max(self.samples, 1):.1f} times fewer than n = {self.n:,}"
        )


def at_radius(contents: Contents) -> AtRadius:
    """The figures of a journal that asks for robustness at one radius."""
    assert contents.header.radius is not None
    records = list(contents.records.values())
    correct = sum(record.certificate.label == record.label for record in records)
    return AtRadius(
        radius=contents.header.radius,
        images=len(records),
        robust=sum(record.certificate.label != ABSTAIN for record in records),
        correct=correct,
        n=contents.header.n,
        samples=sum(record.certificate.drawn for record in records) / max(len(records), 1),
        interval=share_intervals([correct], len(records))[0] if records else None,
    )
