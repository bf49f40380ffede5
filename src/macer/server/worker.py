"""The one thread that samples, for all requests in flight together."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from macer.certification.anytime import ANYTIME
from macer.certification.conclusions import conclude
from macer.server.job import N0, Job
from macer.server.limits import Refusal
from macer.server.served import Seed, Served
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.streams import Purpose
from macer.smoothing.tally import Tally

Value = TypeVar("Value")

# A pass over all images in flight should take about so long: a new request waits for one pass.
# Each image draws at least a chunk. The looks, and so the answers, do not depend on it.
_PASS = 0.1  # seconds

_BUSY = Refusal(503, "busy", "the deadline passed before its turn came; ask again, or with more")
_STOPPED = Refusal(503, "stopped", "the service is stopping; ask again later")


class Worker:
    """Samples the images of all jobs, pass by pass, and runs calls that need the models.

    Args:
        at_once: jobs that are sampled together; the others wait in the order in which they came.
    """

    def __init__(self, seed: Seed, *, at_once: int) -> None:
        self.seed, self.at_once = seed, at_once
        self.samples = 0  # drawn in all
        self.flying: list[Job] = []
        self._waiting: deque[Job] = deque()
        self._calls: deque[tuple[Future[Any], Callable[[], Any], float]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._pace = 10_000.0  # samples a second, measured at each pass
        self._thread = threading.Thread(target=self._run, name="macer-worker", daemon=True)

    @property
    def waiting(self) -> int:
        """Jobs and calls whose turn has not come."""
        return len(self._waiting) + len(self._calls)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Let the pass in progress end; jobs then end with what they have."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def join(self) -> None:
        """Wait until all jobs have ended after `stop`."""
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Take a job; its `tell` says when there is news."""
        with self._wake:
            if self._stopping:
                raise _STOPPED
            self._waiting.append(job)
            self._wake.notify()

    def call(self, act: Callable[[], Value], *, due: float) -> "Future[Value]":
        """Run a function between two passes, in the thread that owns the models.

        Args:
            due: when its turn must have come, by `time.monotonic`.
        """
        future: Future[Value] = Future()
        with self._wake:
            if self._stopping:
                raise _STOPPED
            self._calls.append((future, act, due))
            self._wake.notify()
        return future

    def _run(self) -> None:
        while self._gather():
            if self._calls:
                self._run_call()
            by_model: defaultdict[Served, list[Job]] = defaultdict(list)
            for job in self.flying:
                by_model[job.served].append(job)
            for served, jobs in by_model.items():
                try:
                    self._pass(served, jobs, len(self.flying))
                except Exception as error:  # whatever it is: the others are answered
                    for job in jobs:
                        job.fail(error)
        self._end_all()

    def _gather(self) -> bool:
        """Drop what has ended and let the next jobs in; False if the worker is to stop."""
        with self._wake:
            self.flying = [job for job in self.flying if not (job.done or job.left)]
            self._waiting = deque(job for job in self._waiting if not job.left)
            self._calls = deque(call for call in self._calls if not call[0].cancelled())
            self._wake.wait_for(
                lambda: self._stopping or self.flying or self._waiting or self._calls
            )
            while self._waiting and len(self.flying) < self.at_once:
                job = self._waiting.popleft()
                if job.late and not (job.left or job.begun):
                    job.fail(_BUSY)
                elif not job.left:
                    self.flying.append(job)
            return not self._stopping

    def _run_call(self) -> None:
        future, act, due = self._calls.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            if time.monotonic() >= due:
                raise _BUSY
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)

    def _end_all(self) -> None:
        for job in [*self.flying, *self._waiting]:
            if job.seen is None:
                job.fail(_STOPPED)
            elif not job.done:
                job.end("stopped")
        for future, _, _ in self._calls:
            if future.set_running_or_notify_cancel():
                future.set_exception(_STOPPED)

    def _pass(self, served: Served, jobs: Sequence[Job], flying: int) -> None:
        """Draw the next samples of each image; conclude where they complete a look."""
        started = time.monotonic()
        sampler = served.sampler(
            [job.pixels for job in jobs], [job.number for job in jobs], self.seed.value
        )
        fresh = torch.tensor([job.counts0 is None for job in jobs])
        if fresh.any():
            counts0 = sampler.draw(N0, Purpose.SELECTION, only=fresh)
            for i in fresh.nonzero().flatten().tolist():
                jobs[i].selected(_row(counts0, i))
        share = max(int(self._pace * _PASS / flying) // CHUNK, 1) * CHUNK
        num = np.array([min(job.look - job.drawn, share) for job in jobs])
        more = sampler.draw(num, Purpose.ESTIMATION, after=np.array([job.drawn for job in jobs]))
        for i, job in enumerate(jobs):
            job.add(_row(more, i), int(num[i]))
        drawn = int(num.sum()) + N0 * int(fresh.sum())
        self.samples += drawn
        self._pace = drawn / max(time.monotonic() - started, 1e-6)
        self._conclude([job for job in jobs if job.drawn == job.look])
        for job in jobs:
            if job.seen is not None and not job.done and job.late:
                job.end("deadline")

    def _conclude(self, jobs: Iterable[Job]) -> None:
        """The certificates of jobs at a look, those of one α at a time."""
        by_alpha: defaultdict[float, list[Job]] = defaultdict(list)
        for job in jobs:
            by_alpha[job.alpha].append(job)
        for alpha, group in by_alpha.items():
            certificates = conclude(
                _together(job.counts0 for job in group),
                _together(job.counts for job in group),
                sigma=group[0].served.card.sigma,
                n=max(job.n for job in group),
                alpha=alpha,
                bound=ANYTIME,
                drawn=torch.tensor([job.drawn for job in group]),
            )
            for job, certificate in zip(group, certificates, strict=True):
                job.conclude(certificate, self._copies(job))

    def _copies(self, job: Job) -> tuple[Tensor, ...]:
        """The first noisy copies that voted since the last look, cut off at black and white."""
        if not job.show:
            return ()
        device = job.served.model.device
        copies = NoisyCopies(
            job.pixels[None].to(device),
            [job.number],
            sigma=job.served.card.sigma,
            seed=self.seed.value,
            purpose=Purpose.ESTIMATION,
            rows=CHUNK,
            dtype=torch.float32,
        )
        chunk = Chunks(*(np.array([value]) for value in (0, job.looked // CHUNK, job.show)))
        batch, _ = copies.draw(chunk)
        return tuple((batch[: job.show].clamp(0, 1) * 255).round().to(torch.uint8).cpu())


def _row(tally: Tally, i: int) -> Tally:
    return Tally(*(totals[i : i + 1] for totals in tally))


def _together(tallies: Iterable[Tally | None]) -> Tally:
    return Tally(*map(torch.cat, zip(*(tally for tally in tallies if tally), strict=True)))
