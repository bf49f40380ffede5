import re
import time
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from macer.cli.printing import print_line
from macer.system import progress


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture(autouse=True)
def first_line(monkeypatch):
    """The first line comes as early as for a user; other tests do without it."""
    monkeypatch.setattr(progress, "SECONDS_TO_FIRST_LINE", 2.0)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def screen(request, monkeypatch):
    """What is shown: on a terminal where the test asks for one."""
    file = StringIO()
    terminal = getattr(request, "param", False)
    monkeypatch.setattr(progress, "console", Console(file=file, force_terminal=terminal, width=120))
    return file


def skipping(clock, steps, drawn, total):
    """So many parts of ten seconds; of each some is drawn and the rest skipped."""
    with progress.bar("certifying a", steps * total, "samples") as advance:
        for i in range(1, steps + 1):
            clock.now += 10
            advance(drawn)
            advance.reach(i * total)


def run(clock, steps, seconds, done=0, total=None):
    total = done + steps if total is None else total
    with progress.bar("training a", total, "samples", done) as advance:
        for _ in range(steps):
            clock.now += seconds
            advance(1)


class Timer:
    cancelled = False

    def start(self):
        pass

    def cancel(self):
        self.cancelled = True


def waited_for(screen):
    """Wait until something is shown."""
    for _ in range(3000):
        if screen.getvalue().endswith("\n"):
            return
        time.sleep(0.01)


# law


@pytest.mark.parametrize(
    ("steps", "seconds", "lines"), [(100, 0.05, 0), (100, 1.0, 11), (10, 25.0, 11), (1000, 0.1, 10)]
)
def test_elsewhere_a_line_comes_every_ten_seconds_at_most(clock, screen, steps, seconds, lines):
    run(clock, steps, seconds)
    shown = screen.getvalue().splitlines()
    assert abs(len(shown) - lines) <= 1
    assert len(shown) <= steps * seconds / progress.SECONDS_BETWEEN_LINES + 1
    assert all(line.startswith("training a: ") for line in shown)


def test_elsewhere_a_long_task_ends_with_a_last_line_and_a_short_one_says_nothing(clock, screen):
    run(clock, 3, 0.6)
    assert screen.getvalue() == ""
    run(clock, 25, 1.0)
    assert screen.getvalue().splitlines()[-1] == "training a: 100%, 1 samples/s, 25 s gone"


def test_a_task_that_fails_has_no_last_line(clock, screen):
    with pytest.raises(ZeroDivisionError), progress.bar("a", 30, "samples") as advance:
        clock.now += 11
        advance(1)
        1 / 0  # noqa: B018
    assert len(screen.getvalue().splitlines()) == 1


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_on_a_terminal_a_bar_has_the_share_the_rate_and_the_time_left(clock, screen):
    run(clock, 50, 0.02, total=100)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert re.search(r"training a ━+.* 50% 50 samples/s 1.0 s gone, 1.0 s left", shown)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_shortens_the_title_and_never_the_numbers(clock, monkeypatch, width):
    file = StringIO()
    monkeypatch.setattr(progress, "console", Console(file=file, force_terminal=True, width=width))
    with progress.bar("certifying zoo-mnist-0.50, 2000 images", 200_000_000, "samples") as advance:
        clock.now += 7.7
        advance(55_780)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert re.search(r"cer.* ━+ +0% 7,244 samples/s 7.7 s gone, 7 h 40 min left", shown)
    assert max(map(len, re.split(r"[\r\n]", shown))) <= width


@pytest.mark.parametrize("screen", [True], indirect=True)
@pytest.mark.parametrize("transient", [False, True])
def test_a_transient_bar_is_taken_off_the_terminal(clock, screen, transient):
    with progress.bar("labelling a", 5, "samples", transient=transient) as advance:
        advance(5)
    _, _, after = screen.getvalue().rpartition("labelling a")
    assert ("\x1b[2K" in after) == transient  # a line is erased


@pytest.mark.parametrize("screen", [False, True], indirect=True)
def test_the_speed_is_of_what_was_drawn_and_the_share_of_what_is_done(clock, screen):
    skipping(clock, 4, drawn=100, total=1000)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "100%" in shown and " 10 samples/s" in shown and "0 samples/s" in shown
    assert not re.search(r"\b(?!10 )\d{2,} samples/s", shown)


def test_the_time_left_is_by_what_is_done(clock, screen):
    with progress.bar("a", 3000, "samples") as advance:
        clock.now += 1
        advance(100)
        clock.now += 9
        advance.reach(1000)
    assert screen.getvalue() == "a: 33%, 10 samples/s, 10 s gone, 20 s left\n"


def test_elsewhere_the_first_line_comes_after_two_seconds_and_says_the_time_left(clock, screen):
    with progress.bar("certifying a, 500 images", 500_000, "samples") as advance:
        for _ in range(16):
            clock.now += 0.125
            advance(100)
    shown = "certifying a, 500 images: 0%, 800 samples/s, 2.0 s gone, 10 min 23 s left\n"
    assert screen.getvalue() == shown


def test_elsewhere_a_line_comes_though_nothing_is_done(clock, screen, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_TO_FIRST_LINE", 0.01)
    with progress.bar("trying the network", 11, "passes"):
        clock.now += 2
        waited_for(screen)
    assert screen.getvalue() == "trying the network: 0%, 2.0 s gone\n"


def test_a_command_that_shows_nothing_says_what_it_is_doing(screen, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_TO_FIRST_SIGN", 0.01)
    with progress.first_sign("reading the model"):
        waited_for(screen)
    assert screen.getvalue() == "reading the model\n"


@pytest.mark.parametrize(
    "show",
    [
        lambda: progress.note("a note"),
        lambda: progress.bar("a", 1, "b").__enter__(),
        lambda: print_line("a line of standard output"),
    ],
)
def test_a_command_that_shows_something_says_nothing_else(screen, monkeypatch, show):
    timers = []
    monkeypatch.setattr(progress.threading, "Timer", lambda *_: timers.append(Timer()) or timers[0])
    with progress.first_sign("reading the model"):
        show()
        assert timers[0].cancelled
    assert "reading" not in screen.getvalue()


def test_a_first_sign_ends_with_its_block(screen, monkeypatch):
    timers = []
    monkeypatch.setattr(progress.threading, "Timer", lambda *_: timers.append(Timer()) or timers[0])
    with pytest.raises(ZeroDivisionError), progress.first_sign("reading the model"):
        assert not timers[0].cancelled
        1 / 0  # noqa: B018
    assert timers[0].cancelled


@pytest.mark.parametrize("screen", [False, True], indirect=True)
def test_a_name_is_neither_markup_nor_a_command_to_the_terminal(clock, screen):
    name = "[red]a[/x] :smile:\n\x1b[2J"
    with progress.bar(f"labelling {name}", 10, "samples") as advance:
        clock.now += 11
        advance(10)
    progress.note(f"no {name}")
    shown = r"[red]a[/x] :smile:\n\x1b[2J"
    assert f"labelling {shown}" in screen.getvalue()
    assert f"no {shown}\n" in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()


# known value


def test_a_known_line(clock, screen):
    """1,200 of 2,000 after 12 seconds at 50 a second, the first 600 of them done before."""
    with progress.bar("certifying", 2000, "samples", 600) as advance:
        clock.now += 12
        advance(600)
    assert screen.getvalue() == "certifying: 60%, 50 samples/s, 12 s gone, 16 s left\n"


@pytest.mark.parametrize("screen", [True], indirect=True)
def test_a_bar_of_hours_says_which_time_is_gone_and_which_is_left(clock, screen):
    progress.console.width = 80
    with progress.bar("certifying runs/a", 21 * 192, "samples") as advance:
        clock.now += 192
        advance(192)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert " 1 samples/s 3 min 12 s gone, 1 h 4 min left" in shown


def test_before_any_work_no_time_is_left_to_be_told(clock, screen):
    with progress.bar("a", 30, "samples") as advance:
        clock.now += 11
        advance.reach(0)
    assert screen.getvalue() == "a: 0%, 11 s gone\n"


def test_a_note_is_printed_as_it_is(screen):
    progress.note("[bold]a[/bold] 1.5 " + "x" * 200)
    assert screen.getvalue() == "[bold]a[/bold] 1.5 " + "x" * 200 + "\n"
