"""A real server on this machine: clients that leave, and signals."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_service import IMAGES, png, service

from macer.server import connections
from macer.server.app import Service
from macer.server.listening import bound_socket, server_of
from macer.system.errors import Mistake

BODY = png(IMAGES[0])
CLOSING = b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


@pytest.fixture
def running() -> Iterator[Any]:
    """A service in a thread of its own."""
    made = service(n=10**8, seconds=60)
    bound = bound_socket("127.0.0.1", 0)
    server = server_of(made)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield SimpleNamespace(service=made, server=server, port=bound.getsockname()[1], thread=thread)
    server.handle_exit(signal.SIGTERM, None)
    thread.join(20)
    assert not thread.is_alive()
    bound.close()


def ask(port: int, path: str) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, BODY)
    return connection


def answer_of(connection: HTTPConnection) -> Any:
    with closing(connection):
        return json.loads(connection.getresponse().read())


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def flying(made: Service) -> int:
    return sum(not job.left for job in made.worker.flying)


@pytest.mark.medium
@pytest.mark.parametrize("path", ["/predict?deadline=60", "/stream?deadline=60"])
def test_the_work_of_a_client_that_leaves_is_dropped(running: Any, path: str) -> None:
    connection = ask(running.port, path)
    wait_until(lambda: flying(running.service) == 1)
    connection.close()
    wait_until(lambda: not running.service.worker.flying)
    wait_until(lambda: running.service.admission.inside.total() == 0)
    before = running.service.worker.samples
    time.sleep(0.2)
    assert running.service.worker.samples == before
    answer = answer_of(ask(running.port, "/predict?n=200&deadline=30"))
    assert answer["samples"] == 200


def test_a_stream_shows_looks_while_samples_come_in(running: Any) -> None:
    connection = ask(running.port, "/stream?deadline=60")
    response = connection.getresponse()
    radii = []
    while len(radii) < 4:
        line = response.readline()
        if line.startswith(b"data: "):
            radii.append(json.loads(line[6:])["radius"])
    assert radii == sorted(radii) and radii[-1] > radii[0]
    connection.close()


@pytest.mark.medium
def test_a_signal_ends_requests_with_what_they_have(running: Any) -> None:
    connection = ask(running.port, "/predict?deadline=60")
    wait_until(lambda: any(job.seen for job in running.service.worker.flying))
    running.server.handle_exit(signal.SIGINT, None)
    answer = answer_of(connection)
    assert answer["ended"] == "stopped" and answer["radius"] > 0
    running.thread.join(20)
    assert not running.thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.port))


def test_half_a_request_holds_nobody_up(running: Any) -> None:
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 900\r\n\r\nabc")
        answer = answer_of(ask(running.port, "/predict?n=200&deadline=30"))
        assert answer["samples"] == 200
    wait_until(lambda: running.service.admission.inside.total() == 0)


def test_threads_of_the_network_stay_as_they_were(running: Any) -> None:
    before = torch.get_num_threads()
    answer_of(ask(running.port, "/predict?n=400&deadline=30"))
    assert torch.get_num_threads() == before


@pytest.mark.medium
@pytest.mark.parametrize("drips", [False, True], ids=["nothing", "a byte at a time"])
def test_a_connection_without_a_request_is_closed(
    running: Any, monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as silent:
        silent.sendall(b"GET /health HTTP/1.1\r\nhost: ")
        if drips:
            wait_until(lambda: not_taken(silent))
        else:
            assert silent.recv(1) == b""
    wait_until(lambda: not running.server.server_state.connections)


def not_taken(connection: socket.socket) -> bool:
    """Whether another byte is refused, since the other end has closed."""
    try:
        connection.sendall(b"a")
    except OSError:
        return True
    return False


@pytest.mark.medium
def test_an_answer_may_take_longer_than_the_head_of_its_request(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    answer = answer_of(ask(running.port, "/predict?deadline=1.5"))
    assert answer["ended"] == "deadline" and answer["samples"] > 0


@pytest.mark.medium
def test_a_connection_serves_request_after_request(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    connection = HTTPConnection("127.0.0.1", running.port, timeout=20)
    with closing(connection):
        for _ in range(3):
            connection.request("GET", "/health")
            first = connection.sock
            assert connection.getresponse().read() and connection.sock is first
            time.sleep(0.4)  # longer than a head may take, shorter than a connection is kept


def test_more_connections_than_there_may_be_are_refused_in_one_line(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    with socket.create_connection(("127.0.0.1", running.port)):
        wait_until(lambda: len(running.server.server_state.connections) == 1)
        response = answered_raw(running.port, CLOSING)
        assert response.startswith(b"HTTP/1.1 503 ") and b"too many connections" in response
    wait_until(lambda: not running.server.server_state.connections)
    answer = answer_of(ask(running.port, "/predict?n=200&deadline=30"))
    assert answer["samples"] == 200


def test_what_is_no_http_is_refused_in_one_line(running: Any) -> None:
    head, _, body = answered_raw(running.port, b"\x16\x03\x01 hello\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"] == {"kind": "http", "message": "the request must be HTTP/1.1"}


def answered_raw(port: int, request: bytes) -> bytes:
    """All that the service sends until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        while more := connection.recv(4096):
            received += more
    return received


def test_a_port_that_is_taken_is_refused_with_what_to_choose() -> None:
    with closing(bound_socket("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = rf"^cannot listen on 127\.0\.0\.1:{port}: .*; choose another --host or --port$"
        with pytest.raises(Mistake, match=line):
            bound_socket("127.0.0.1", port)
