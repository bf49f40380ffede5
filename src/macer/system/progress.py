"""Visible progress: a bar on a terminal, otherwise a plain line every few seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from macer.system.processes import is_first
from macer.system.text import duration, one_line, rate_text

SECONDS_BETWEEN_LINES = 10.0
SECONDS_TO_FIRST_LINE = 2.0
SECONDS_TO_FIRST_SIGN = 1.5  # of a command that has shown nothing yet
WIDE = 120  # columns of a terminal
SHORTEST_TITLE = 10

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
        return f"{rate_text(self.worked / self.seconds())} {self.unit}/s"

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
    end_first_sign()
    if console.is_terminal:
        with _terminal_bar(transient) as progress:
            yield _Bar(progress, title, total, unit, done)
    else:
        lines = _Lines(title, total, unit, done)
        with lines.ticking():
            yield lines
        lines.close()


@contextmanager
def live_line() -> Iterator[Callable[[str, bool], None]]:
    """Show the last of several texts while the block runs: the block calls the yielded function.

    On a terminal one line changes, and goes at the end. Elsewhere plain lines are printed: at
    once if the function's second argument is true, else at most one in ten seconds.
    """
    end_first_sign()
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
        _Title(),
        BarColumn(_bar_width()),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        _Times(Column(no_wrap=True)),
        console=console,
        transient=transient,
    )


def _bar_width() -> int:
    return 40 if console.width >= WIDE else 10


class _Title(ProgressColumn):
    """The task, cut where its line would not hold speed and times."""

    def render(self, task: Task) -> Text:
        numbers = ("100%", task.fields["rate"], task.fields["times"]())
        taken = _bar_width() + 1 + sum(len(number) + 1 for number in numbers)
        text = Text(task.description, no_wrap=True)
        text.truncate(max(console.width - taken, SHORTEST_TITLE), overflow="ellipsis")
        return text


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
    """Plain lines: one after two seconds, then at most one in ten; a last one after a long task.

    A thread of its own prints them while a piece of work takes long, or before the first is done.
    """

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        super().__init__(total, unit, done)
        self.title, self.next = title, self.started + SECONDS_TO_FIRST_LINE
        self.lock = threading.Lock()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Print the lines that are due while the block runs, from a thread of its own."""
        ended = threading.Event()
        thread = threading.Thread(target=self._tick, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(SECONDS_TO_FIRST_LINE):
            self.show()

    def show(self) -> None:
        with self.lock:
            now = time.monotonic()
            if now >= self.next:
                self.next = now + SECONDS_BETWEEN_LINES
                self._print()

    def close(self) -> None:
        if self.seconds() >= SECONDS_BETWEEN_LINES and self.done >= self.total:
            self._print()

    def _print(self) -> None:
        share = self.done / self.total if self.total else 1.0
        speed = f"{self.speed()}, " if self.worked else ""
        note(f"{self.title}: {share:.0%}, {speed}{self.times()}")


_first_sign: threading.Timer | None = None


@contextmanager
def first_sign(text: str) -> Iterator[None]:
    """Print a line if the block has shown nothing after a second and a half."""
    global _first_sign
    _first_sign = threading.Timer(SECONDS_TO_FIRST_SIGN, note, (text,))
    _first_sign.daemon = True
    _first_sign.start()
    try:
        yield
    finally:
        end_first_sign()


def end_first_sign() -> None:
    """Something is shown by now: a first sign that has not come need not come."""
    if _first_sign is not None:
        _first_sign.cancel()


def note(text: str) -> None:
    """Print a plain line beside the progress, made safe by `one_line`; a terminal breaks it."""
    end_first_sign()
    console.print(Text(one_line(text)), soft_wrap=not console.is_terminal)
