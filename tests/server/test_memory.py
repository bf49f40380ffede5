"""Memory that the service gives back."""

import asyncio
from contextlib import suppress

import pytest

from macer.server import memory


@pytest.mark.medium
def test_memory_is_trimmed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(memory, "SECONDS", 0.01)
    monkeypatch.setattr(memory, "give_back", lambda: calls.append(1))

    async def some_time() -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(memory.keep_trimmed(), 1.0)

    asyncio.run(some_time())
    assert len(calls) > 2
