"""CERTIFY with an answer at any time: certificates that grow while samples come in."""

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

from macer.certification.certificate import Certificate
from macer.certification.conclusions import conclude, selected_classes, worth_estimating
from macer.certification.settings import ImageArray, as_inputs, check_settings, least_useful_n
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.models.callables import Classifier, as_network
from macer.recipes import MOST_VOTES
from macer.smoothing.bounds import bound_named
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Progress, Sampler
from macer.smoothing.sequential import next_look
from macer.smoothing.streams import Purpose
from macer.system.errors import Mistake

ANYTIME = "anytime"

# Chunks that a look adds at least. An image's own chunks are shared by the threads; the number is
# no property of the machine, so that the looks are the same everywhere.
_CHUNKS = 2


def certify_anytime(
    model: Classifier,
    images: ImageArray,
    *,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    seed: int = 0,
    seconds: float | None = None,
    exact: bool | None = None,
    value_range: ValueRange = IMAGE_RANGE,
    num_classes: int | None = None,
    labels: Sequence[int] | None = None,
    batch_size: int | None = None,
    row_by_row: bool = False,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Iterator[list[Certificate]]:
    """Certify each input with more and more samples; stop whenever you like.

    ĉ_A ← top index in SampleUnderNoise(f, x, n0, σ)
    at each look: draw more samples; yield, for each image, the certificate of the look with the
    largest radius so far                                                [confidence_sequence.py]

    For each image, with probability at least 1 − α over the noise, every certificate that is ever
    yielded holds: where the caller stops, and why, makes no difference. The iterator ends after n
    samples. A certificate follows from its own counts; they are of the first `drawn` samples that
    `certify` draws too.

    Args:
        seconds: also end after about so much time, counted from the first sample; the first look
            is always finished. Other arguments are `certify`'s.
    """
    inputs = as_inputs(images, sigma=sigma, exact=exact, value_range=value_range)
    sampler = Sampler(
        model=as_network(model, num_classes), images=inputs, sigma=sigma, seed=seed,
        indices=indices, batch_size=batch_size, row_by_row=row_by_row, num_classes=num_classes,
        progress=progress,
    )  # fmt: skip
    return sample_anytime(sampler, n0=n0, n=n, alpha=alpha, labels=labels, seconds=seconds)


def sample_anytime(
    sampler: Sampler,
    *,
    n0: int,
    n: int,
    alpha: float,
    labels: Sequence[int] | None = None,
    seconds: float | None = None,
) -> Iterator[list[Certificate]]:
    """The certificates look after look, as `certify_anytime` says; settings are checked at once."""
    check_settings(sigma=sampler.sigma, n0=n0, n=n, alpha=alpha, bound=ANYTIME, seed=sampler.seed)
    check_seconds(seconds)
    return _certificates(sampler, n0, n, alpha, labels, seconds)


def check_seconds(seconds: float | None) -> None:
    """Refuse a time that is no number above 0."""
    if seconds is not None and not 0 < seconds < float("inf"):
        raise Mistake(f"seconds must be > 0, got {seconds}")


def _certificates(
    sampler: Sampler,
    n0: int,
    n: int,
    alpha: float,
    labels: Sequence[int] | None,
    seconds: float | None,
) -> Iterator[list[Certificate]]:
    if len(sampler.images) == 0:
        yield []
        return
    clock = _Clock(seconds)
    counts0 = sampler.draw(n0, Purpose.SELECTION)
    estimated = worth_estimating(selected_classes(counts0, ANYTIME), labels)
    counts = counts0.emptied()
    best: list[Certificate] = []
    before, size = 0, first_look(n, alpha)
    while size > before:
        clock.start()
        if estimated.any():
            more = sampler.draw(size - before, Purpose.ESTIMATION, only=estimated, after=before)
            counts = counts.plus(more)
        certificates = conclude(
            counts0, counts, sigma=sampler.sigma, n=n, alpha=alpha, bound=ANYTIME,
            drawn=estimated * size, exact=sampler.exact,
        )  # fmt: skip
        best = [larger(*pair) for pair in zip(certificates, best or certificates, strict=True)]
        clock.looked(size - before)
        yield best
        if not estimated.any():
            return
        before, size = size, min(look_after(size, n), size + clock.fitting())


@lru_cache(maxsize=256)
def first_look(n: int, alpha: float) -> int:
    """The first look after which the bound can certify anything."""
    least, size = least_useful_n(bound_named(ANYTIME), alpha), 0
    while size < least:
        size = look_after(size, n)
    return size


def look_after(size: int, n: int) -> int:
    """The samples at the look after the one at `size`; n at the last."""
    return next_look(size, n, chunks=_CHUNKS)


def larger(now: Certificate, then: Certificate) -> Certificate:
    """Of one image's certificates, the one with the larger radius; now, if they are equal."""
    return max(now, then, key=lambda certificate: certificate.radius)


class _Clock:
    """How many samples the time left allows for, at the pace of the last look."""

    def __init__(self, seconds: float | None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.started = self.pace = 0.0

    def start(self) -> None:
        """A look begins."""
        self.started = time.monotonic()

    def looked(self, drawn: int) -> None:
        """The look has drawn so many samples."""
        self.pace = drawn / max(time.monotonic() - self.started, 1e-9)

    def fitting(self) -> int:
        """The samples, in whole steps, that the next look may draw."""
        if self.end is None:
            return MOST_VOTES
        step = CHUNK * _CHUNKS
        return max(int(self.pace * (self.end - time.monotonic())), 0) // step * step
