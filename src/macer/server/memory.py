"""Memory that the service has freed goes back to the system; glibc keeps it otherwise."""

import asyncio
import ctypes
from contextlib import suppress

from starlette.concurrency import run_in_threadpool

SECONDS = 10.0  # between two times; a trim takes milliseconds
_M_ARENA_MAX, _ARENAS = -8, 2  # of glibc's malloc.h


def share_arenas() -> None:
    """Let all threads take memory from two arenas; to be called before there are threads.

    glibc gives each thread that decodes images an arena of its own, which keeps what is freed.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give the free pages of all arenas back to the system."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


async def keep_trimmed() -> None:
    """Trim again and again, until this is cancelled."""
    while True:
        await asyncio.sleep(SECONDS)
        await run_in_threadpool(trim)
