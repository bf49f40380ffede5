"""Stopping when asked to: SIGTERM and SIGINT are noticed between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """Training was asked to stop and has saved its state."""

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

    before = {int(n): signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
