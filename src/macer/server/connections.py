"""Connections that say nothing are closed, so that they do not take the places of others."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the head of a request; its body has a time of its own


class PromptProtocol(H11Protocol):
    """HTTP, on a connection that is closed unless the head of a request comes in time."""

    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._time_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, or stop: a part of a head gives no more time."""
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timing()
        super().connection_lost(exc)

    def _time_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_timing()
        elif self._silence is None:
            self._silence = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_timing(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
