"""Connections: how many there may be, and how long a client may send nothing."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from macer.server.front import error_answer

CONNECTIONS = 1024  # at once
HEAD_SECONDS = 10.0  # for the head of a request; its body has a time of its own

_FULL = error_answer(503, "connections", "too many connections at once; ask again later")
_NO_HTTP = error_answer(400, "http", "the request must be HTTP/1.1")


class PromptProtocol(H11Protocol):
    """HTTP, on a connection that is closed unless the head of a request comes in time."""

    _silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._time_head()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, or stop: a part of a head gives no more time."""
        full = len(self.connections) > CONNECTIONS
        self.app = _FULL if full else self.config.loaded_app
        super().data_received(data)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timing()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP in the form of all other errors."""
        headers = [*_NO_HTTP.raw_headers, (b"connection", b"close")]
        answer = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (answer, h11.Data(data=bytes(_NO_HTTP.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _time_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop_timing()
        elif self._silence is None:
            self._silence = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_timing(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
