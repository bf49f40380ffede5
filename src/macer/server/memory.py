"""Memory that the service has freed goes back to the system; glibc keeps it otherwise."""

import asyncio

from starlette.concurrency import run_in_threadpool

from macer.system.allocator import give_back

SECONDS = 10.0  # between two times; a trim takes milliseconds


async def keep_trimmed() -> None:
    """Give memory back again and again, until this is cancelled."""
    while True:
        await asyncio.sleep(SECONDS)
        await run_in_threadpool(give_back)
