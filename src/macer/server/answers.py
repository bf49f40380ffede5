"""Answers as JSON: what was certified, how, and by which model."""

import base64
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING

import numpy as np
from torch import Tensor

from macer.certification.anytime import ANYTIME
from macer.certification.certificate import ABSTAIN
from macer.certification.table import rounded, rounded_down
from macer.data.png import png_file
from macer.server.job import N0, Job
from macer.server.served import Seed


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A label with its certified radius, or an abstention; of a stream, what is known so far."""

    label: int | None  # None for an abstention
    class_name: str | None
    abstained: bool
    radius: float  # in ℓ₂ for pixels in [0, 1], rounded down; 0 for an abstention
    asked: float | None  # the radius that was enough
    p_a: float  # lower bound of the class's probability under noise, rounded down
    alpha: float  # probability that any certificate of this image is ever false
    bound: str
    sigma: float
    n0: int
    n: int  # most samples
    drawn: int  # samples behind the certificate
    samples: int  # samples drawn so far, without those that selected the class
    votes: list[int]  # of these samples, by class
    selected: int  # the class that the n0 samples selected
    seed: int | str  # "secret", or the number that the service was started with
    model: str
    model_sha256: str
    precision: str
    exact: bool
    seconds: float  # since the request came
    ended: str | None  # deadline, samples, radius or stopped; None while more may come
    copies: list[str]  # noisy images that voted, PNG in base64, for a stream that asks for them


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """An image that an attack found, and what the smoothed classifier says of it."""

    image: str  # PNG in base64
    distance: float  # from the image that was attacked, rounded up
    length: float  # that was allowed
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Error:
    """Why there is no answer."""

    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class ErrorAnswer:
    """The body of every answer that is no success."""

    error: Error


def answer_of(job: Job, seed: Seed) -> Answer:
    """The answer for a job after its first look: what is known of its image."""
    seen = job.seen
    assert seen is not None
    certificate, served = seen.certificate, job.served
    abstained = certificate.label == ABSTAIN
    return Answer(
        label=None if abstained else certificate.label,
        class_name=None if abstained else served.card.classes[certificate.label],
        abstained=abstained,
        radius=float(rounded_down(certificate.radius, 4)),
        asked=job.asked,
        p_a=float(rounded_down(certificate.p_a, 6)),
        alpha=job.alpha,
        bound=ANYTIME,
        sigma=served.card.sigma,
        n0=N0,
        n=job.n,
        drawn=certificate.drawn,
        samples=seen.samples,
        votes=list(seen.votes),
        selected=certificate.selected,
        seed=seed.shown,
        model=served.name,
        model_sha256=served.model.target.weights_sha256,
        precision=served.model.precision,
        exact=certificate.exact,
        seconds=round(seen.seconds, 3),
        ended=seen.ended,
        copies=[_png(copy) for copy in seen.copies],
    )


def attacked_of(job: Job, seed: Seed, pixels: Tensor, *, length: float) -> Attacked:
    """The answer for the image that an attack on `pixels` found, and its distance from there."""
    squares = ((job.pixels.int() - pixels.int()) ** 2).sum().item()
    distance = float(rounded(np.sqrt(squares) / 255, 4, ROUND_CEILING))
    answer = replace(answer_of(job, seed), copies=[])
    return Attacked(image=_png(job.pixels), distance=distance, length=length, answer=answer)


def _png(pixels: Tensor) -> str:
    """(channels, height, width) uint8 as a PNG file in base64."""
    return base64.b64encode(png_file(pixels.numpy())).decode()
