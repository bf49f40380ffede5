"""Signals that stop a command without losing finished work."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from macer.system.errors import Stopped


@contextmanager
def catching_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in the yielded list instead of ending the process.

    A second signal of the same kind has its usual effect.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def handle(number: int, _: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, before[number])

    handlers = {int(n): signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    # A handler that another language installed reads as None; Python could not restore it.
    before = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in before:
        signal.signal(number, handle)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Finish the block before SIGTERM or SIGINT takes effect."""
    with catching_signals() as caught:
        yield
    for number in caught:
        signal.raise_signal(number)


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise Stopped, as SIGINT raises KeyboardInterrupt, so that `finally` blocks run.

    This is for work that saves each part when the part is finished. Work that must first reach a
    point where it can be saved uses `catching_signals`.
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
