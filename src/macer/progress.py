"""Progress that can be seen: a bar on a terminal, a plain line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from macer.ranks import is_first

SECONDS_BETWEEN_LINES = 10.0

# Progress goes to standard error, so that tables on standard output can be piped.
console = Console(stderr=True, quiet=not is_first())


@contextmanager
def bar(
    what: str, total: int, unit: str, done: int = 0, *, passing: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show progress while the block runs; it calls the yielded function with what it has done.

    Args:
        passing: take a terminal's bar away at the end.
    """
    if console.is_terminal:
        with _terminal_bar(passing) as progress:
            task = progress.add_task(what, total=total, completed=done, rate="")
            started = time.monotonic()

            def advance(amount: int) -> None:
                progress.advance(task, amount)
                fresh = progress.tasks[task].completed - done
                seconds = max(time.monotonic() - started, 1e-9)
                progress.update(task, rate=f"{fresh / seconds:,.0f} {unit}/s")

            yield advance
    else:
        lines = _Lines(what, total, unit, done)
        yield lines.advance
        lines.close()


def _terminal_bar(passing: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=passing,
    )


class _Lines:
    """Plain lines, at most one in ten seconds, and one at the end if there was one before."""

    def __init__(self, what: str, total: int, unit: str, done: int) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = self.done_before = done
        self.started = self.last = time.monotonic()

    def advance(self, amount: int) -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self._print(now)

    def close(self) -> None:
        if self.last > self.started and self.done >= self.total:
            self._print(time.monotonic())

    def _print(self, now: float) -> None:
        rate = (self.done - self.done_before) / max(now - self.started, 1e-9)
        left = (self.total - self.done) / rate if rate else float("inf")
        share = self.done / self.total if self.total else 1.0
        note(f"{self.what}: {share:.0%}, {rate:,.0f} {self.unit}/s, {left:.0f} s left")


def note(text: str) -> None:
    """Print a plain line beside the progress."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
