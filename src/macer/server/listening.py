"""Listen on an address until a signal comes."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from macer.server.app import Service
from macer.server.connections import CONNECTIONS, PromptProtocol
from macer.system.errors import Mistake

_LAST_SECONDS = 10  # for answers that are on their way when a signal comes


class _Server(uvicorn.Server):
    """Ends its jobs with what they have when a signal comes, and then itself."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM for the end, not for a failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {n: signal.signal(n, self.handle_exit) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Answer what is asked now, with the certificates so far."""
        self.service.worker.stop()
        super().handle_exit(sig, frame)


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; a port of 0 is any free one."""
    if not 0 <= port < 65536:
        raise Mistake(f"port must be from 0 to 65535, got {port}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as error:
        raise Mistake(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host or "
            "--port"
        ) from None


def server_of(service: Service) -> uvicorn.Server:
    """The HTTP server of the service."""
    config = uvicorn.Config(
        service.front, http=PromptProtocol, ws="none", log_level="critical", access_log=False,
        server_header=False, timeout_graceful_shutdown=_LAST_SECONDS,
    )  # fmt: skip
    return _Server(config, service)


def listen(service: Service, bound: socket.socket) -> None:
    """Answer until SIGINT or SIGTERM; the requests inside are then answered at once."""
    server_of(service).run(sockets=[bound])
