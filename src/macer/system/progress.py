"""Visible progress: a bar on a terminal, otherwise a plain line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from macer.system.processes import is_first
from macer.system.text import one_line

SECONDS_BETWEEN_LINES = 10.0

# Progress goes to standard error, so that tables on standard output can be piped.
console = Console(stderr=True, quiet=not is_first())


class Advance:
    """How much of a task is done: call it after each piece of work with the amount of work."""

    def __init__(self, total: int, unit: str, done: int) -> None:
        self.total, self.unit = total, unit
        self.done = self.done_before = done
        self.worked = 0  # without what was skipped or done before
        self.started = time.monotonic()

    def __call__(self, amount: int) -> None:
        """Add the amount of work since the last call."""
        self.worked += amount
        self.done += amount
        self.show()

    def reach(self, done: int) -> None:
        """Set how much is done by now; skipped work does not count for the speed."""
        self.done = done
        self.show()

    def speed(self) -> str:
        """Work per second."""
        return f"{self.worked / self.seconds():,.0f} {self.unit}/s"

    def seconds(self) -> float:
        """Seconds since the beginning."""
        return max(time.monotonic() - self.started, 1e-9)

    def times(self) -> str:
        """How long it has run and, by the pace until now, how long it will run still."""
        gone = f"{duration(self.seconds())} gone"
        pace = (self.done - self.done_before) / self.seconds()
        if self.done >= self.total or not pace:
            return gone
        return f"{gone}, {duration((self.total - self.done) / pace)} left"

    def show(self) -> None:
        """Show the progress."""
        raise NotImplementedError


@contextmanager
def bar(
    title: str, total: int, unit: str, done: int = 0, *, transient: bool = False
) -> Iterator[Advance]:
    """Show progress while the block runs; the block calls the yielded object as it works.

    Args:
        title: the task, as it is shown.
        done: the part of the total that was done before.
        transient: remove a terminal's bar at the end.
    """
    title = one_line(title)
    if console.is_terminal:
        with _terminal_bar(transient) as progress:
            yield _Bar(progress, title, total, unit, done)
    else:
        lines = _Lines(title, total, unit, done)
        yield lines
        lines.close()


@contextmanager
def live_line() -> Iterator[Callable[[str, bool], None]]:
    """Show the last of several texts while the block runs: the block calls the yielded function.

    On a terminal one line changes, and goes at the end. Elsewhere plain lines are printed: those
    for which the function's second argument is true, and else at most one in ten seconds.
    """
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            yield lambda text, _: live.update(Text(one_line(text)), refresh=True)
        return
    last = time.monotonic()

    def show(text: str, at_once: bool) -> None:
        nonlocal last
        if at_once or time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            note(text)

    yield show


def _terminal_bar(transient: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        _Times(Column(no_wrap=True)),
        console=console,
        transient=transient,
    )


class _Times(ProgressColumn):
    """The times of a bar, which go on between two pieces of work."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["times"]())


class _Bar(Advance):
    """A bar on a terminal."""

    def __init__(self, progress: Progress, title: str, total: int, unit: str, done: int) -> None:
        super().__init__(total, unit, done)
        self.progress = progress
        self.task = progress.add_task(title, total=total, completed=done, rate="", times=self.times)

    def show(self) -> None:
        self.progress.update(self.task, completed=self.done, rate=self.speed())


class _Lines(Advance):
    """Plain lines, at most one in ten seconds; a last one at the end if any was printed before."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        super().__init__(total, unit, done)
        self.title, self.last = title, self.started

    def show(self) -> None:
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self._print()

    def close(self) -> None:
        if self.last > self.started and self.done >= self.total:
            self._print()

    def _print(self) -> None:
        share = self.done / self.total if self.total else 1.0
        note(f"{self.title}: {share:.0%}, {self.speed()}, {self.times()}")


def duration(seconds: float) -> str:
    """A time in its two largest units: 42 s, 3 min 12 s, 1 h 04 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def note(text: str) -> None:
    """Print a plain line beside the progress, made safe by `one_line`."""
    console.print(Text(one_line(text)), soft_wrap=True)
