"""What a certification takes in seconds and money, before it is begun.

Everything here is arithmetic. `measured_pace` in `pace.py` measures what it starts from.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from macer.certification.reach import (
    USUAL_BOUND,
    Course,
    course,
    largest_radius,
    least_n,
    least_n_in_steps,
    p_a_at,
)
from macer.smoothing.copies import CHUNK, chunks_for
from macer.smoothing.sampling import block_size
from macer.smoothing.sequential import reaches

USUAL_SIZES = (1000, 10_000, 100_000)  # n of a plan's table, beside the one asked for
DECIDED_EARLY = 1000  # samples after which one radius is usually decided

# What is shown of early stopping at R: images that are robust to these multiples of it.
TRUE_RADII = (0.5, 1.1, 1.5, 2.0)


@dataclass(frozen=True)
class Pace:
    """How fast a machine samples a network, as measured."""

    samples_per_second: float  # with all threads at work
    preparation: float  # seconds before the first sample, once
    threads: int  # 1 for an accelerator
    task: int  # chunks of samples that a thread, or an accelerator, takes at once
    rows: int  # that the network sees at once
    padded: bool  # whether a task that is not full takes as long as a full one

    def seconds(self, images: float, num: int) -> float:
        """Seconds to draw `num` samples of each image, all of them together.

        An image's last chunk takes as long as a full one, and threads without a task are idle.
        """
        full, rest = divmod(float(images * chunks_for(num)), self.task)
        if self.padded:
            rest = float(self.task) if rest else 0.0
        # The rest is taken by a thread that would else be idle, if there is one.
        longest = float(math.ceil(full / self.threads) * self.task)
        longest += 0.0 if full % self.threads else rest
        return longest * self.threads * CHUNK / self.samples_per_second


def _blocks(images: int, size: int) -> Iterator[int]:
    yield from [size] * (images // size)
    if rest := images % size:
        yield rest


def certification_seconds(pace: Pace, images: int, *, n0: int, n: int) -> float:
    """Seconds to certify images by n0 + n samples each, without the preparation."""
    selection, estimation = _seconds_of_draws(pace, images, n0, n)
    return selection + estimation


def _seconds_of_draws(pace: Pace, images: int, n0: int, n: int) -> tuple[float, float]:
    """Seconds of the selections and of the estimations."""
    blocks = list(_blocks(images, block_size(pace.rows, n0 + n)))
    selection, estimation = (
        math.fsum(pace.seconds(block, num) for block in blocks) for num in (n0, n)
    )
    return selection, estimation


def course_seconds(pace: Pace, images: int, course: Course, *, n0: int, n: int) -> float:
    """Seconds to certify images of one p_A at one radius, without the preparation."""
    looks = list(zip(course.steps, course.shares, strict=True))
    return math.fsum(
        pace.seconds(block, n0)
        + math.fsum(pace.seconds(block * share, step) for step, share in looks)
        for block in _blocks(images, block_size(pace.rows, n0 + min(n, DECIDED_EARLY)))
    )


def cost(seconds: float, price: float | None) -> float | None:
    """What so many seconds cost at a price per hour."""
    return None if price is None else seconds / 3600 * price


@dataclass(frozen=True)
class SizeBudget:
    """What n samples per image certify and take."""

    n: int
    radius: float  # the largest they can certify
    seconds_per_image: float
    seconds: float  # of all images, preparation included
    cost: float | None


@dataclass(frozen=True)
class EarlyBudget:
    """What `certify --radius` takes for images that are robust to one true radius."""

    true_radius: float
    p_a: float
    samples: float  # per image on average, n0 included
    robust: float  # probability that an image is certified
    seconds: float  # of all images, preparation included
    cost: float | None


@dataclass(frozen=True)
class RadiusBudget:
    """What one radius needs."""

    radius: float
    p_a: float  # the probability of the top class that must be exceeded
    least_n: int | None
    least_n_early: int | None  # with `certify --radius`
    early: tuple[EarlyBudget, ...]  # empty if n is fewer than `least_n_early`


@dataclass(frozen=True)
class PlannedCertification:
    """What is planned: images, settings and the pace they are sampled at."""

    pace: Pace
    images: int
    sigma: float
    alpha: float
    n0: int
    n: int
    bound: str = USUAL_BOUND
    price: float | None = None

    def sizes(self) -> list[SizeBudget]:
        """What each usual n and the one asked for certify and take."""
        return [self.size(n) for n in sorted({*USUAL_SIZES, self.n})]

    def size(self, n: int) -> SizeBudget:
        """What n samples per image certify and take."""
        sampling = certification_seconds(self.pace, self.images, n0=self.n0, n=n)
        seconds = self.pace.preparation + sampling
        radius = largest_radius(n, sigma=self.sigma, alpha=self.alpha, bound=self.bound)
        return SizeBudget(n, radius, sampling / self.images, seconds, cost(seconds, self.price))

    def radius(self, radius: float) -> RadiusBudget:
        """What a radius needs."""
        level = {"sigma": self.sigma, "alpha": self.alpha}
        early = reaches(radius, **level, n_max=self.n)
        return RadiusBudget(
            radius,
            p_a_at(radius, self.sigma),
            least_n(radius, **level, bound=self.bound),
            least_n_in_steps(radius, **level),
            tuple(self._early(radius, share * radius) for share in TRUE_RADII if early),
        )

    def _early(self, radius: float, true_radius: float) -> EarlyBudget:
        p_a = p_a_at(true_radius, self.sigma)
        runs = course(p_a, radius=radius, sigma=self.sigma, alpha=self.alpha, n=self.n)
        sampling = course_seconds(self.pace, self.images, runs, n0=self.n0, n=self.n)
        seconds = self.pace.preparation + sampling
        return EarlyBudget(
            true_radius, p_a, self.n0 + runs.samples, runs.robust, seconds,
            cost(seconds, self.price),
        )  # fmt: skip

    def saved_by_score(self) -> float:
        """Seconds that `--score` saves for each image whose selected class is wrong."""
        _, estimation = _seconds_of_draws(self.pace, self.images, self.n0, self.n)
        return estimation / self.images
