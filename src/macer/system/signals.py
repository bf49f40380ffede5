"""Stopping when asked to, with all that was done on the disk."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """A command was asked to stop; what it had done is saved. No error that may be passed over."""

    def __init__(self, signal_number: int, message: str) -> None:
        super().__init__(message)
        self.signal_number = signal_number


@contextmanager
def catching_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in the yielded list instead of dying of them.

    A second one kills as usual.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def handle(number: int, _: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, before[number])

    found = {int(n): signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    # What another language has installed is None, and stays.
    before = {number: handler for number, handler in found.items() if handler is not None}
    for number in before:
        signal.signal(number, handle)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def finishing_first() -> Iterator[None]:
    """Let what is begun be finished; a signal that came meanwhile has its effect then."""
    with catching_signals() as caught:
        yield
    for number in caught:
        signal.raise_signal(number)


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Let SIGTERM raise Stopped, as SIGINT raises KeyboardInterrupt: what is in `finally` is done.

    For work whose every part is on the disk when it is finished; `catching_signals` is for work
    that must be brought to a point where it can be saved.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, before)
        raise Stopped(number, "stopped; what was finished is saved")

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
