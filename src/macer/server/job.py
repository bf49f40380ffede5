"""One request in flight: what it asks for, and how far its image has been sampled."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from macer.certification.anytime import first_look, larger, look_after
from macer.certification.certificate import Certificate
from macer.server.served import Served
from macer.smoothing.tally import Tally

N0 = 100  # samples that select the class


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of an image at a look; it holds at this moment and at all others."""

    certificate: Certificate  # that of the look with the largest radius so far
    votes: tuple[int, ...]  # of all samples so far
    samples: int
    seconds: float  # since the request came
    copies: tuple[Tensor, ...] = ()  # some of the noisy images that voted
    ended: str | None = None  # why no look follows: deadline, samples, radius or stopped


@dataclass(eq=False, kw_only=True)
class Job:
    """An image that is sampled look after look. The worker's thread alone changes what it counts.

    Args:
        number: names the image's noise.
        n: the most samples.
        deadline: seconds since it came; the first look is always finished.
        asked: a radius that is enough.
        show: noisy copies to show at each look.
        came: when the request came, by `time.monotonic`.
        begun: whether its turn has come already; then it gets its first look however late it is.
        tell: called in the worker's thread when there is news.
    """

    served: Served
    pixels: Tensor
    number: int
    alpha: float
    n: int
    deadline: float
    asked: float | None = None
    show: int = 0
    came: float = field(default_factory=time.monotonic)
    begun: bool = False
    tell: Callable[[], None] = lambda: None

    left: bool = False  # nobody waits for it any more
    seen: Seen | None = None
    error: Exception | None = None
    counts0: Tally | None = None
    counts: Tally | None = None
    drawn: int = 0
    looked: int = 0  # samples at the last look
    look: int = field(init=False)  # samples at the next one

    def __post_init__(self) -> None:
        self.look = first_look(self.n, self.alpha)

    @property
    def done(self) -> bool:
        """Whether no news follows."""
        return self.error is not None or (self.seen is not None and self.seen.ended is not None)

    @property
    def late(self) -> bool:
        """Whether its deadline has passed."""
        return time.monotonic() >= self.came + self.deadline

    def selected(self, counts0: Tally) -> None:
        """Take the votes that select the class."""
        self.counts0 = counts0
        self.counts = counts0.emptied()

    def add(self, more: Tally, drawn: int) -> None:
        """Count more samples."""
        assert self.counts is not None
        self.counts = self.counts.plus(more)
        self.drawn += drawn

    def conclude(self, now: Certificate, copies: tuple[Tensor, ...]) -> None:
        """A look: keep the larger certificate, and go on unless that is enough."""
        assert self.counts is not None
        best = larger(now, self.seen.certificate if self.seen else now)
        self.seen = Seen(
            certificate=best,
            votes=tuple(self.counts.votes[0].tolist()),
            samples=self.drawn,
            seconds=time.monotonic() - self.came,
            copies=copies,
            ended=self._ended(best),
        )
        self.looked, self.look = self.drawn, look_after(self.drawn, self.n)
        self.tell()

    def _ended(self, best: Certificate) -> str | None:
        if self.asked is not None and best.radius >= self.asked:
            return "radius"
        if self.drawn == self.n:
            return "samples"
        return "deadline" if self.late else None

    def end(self, why: str) -> None:
        """End between two looks with what was seen; there must have been a look."""
        assert self.seen is not None
        seconds = time.monotonic() - self.came
        self.seen = Seen(**{**vars(self.seen), "seconds": seconds, "ended": why, "copies": ()})
        self.tell()

    def fail(self, error: Exception) -> None:
        """End without an answer."""
        self.error = error
        self.tell()
