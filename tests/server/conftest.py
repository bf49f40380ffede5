"""Services of tiny models that the tests start."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from tiny_service import service


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A service with a fixed seed and at most 2,000 samples."""
    with TestClient(service(n=2000).front) as client:
        yield client


@pytest.fixture
def started() -> Iterator[Callable[..., TestClient]]:
    """Start services with settings of one's own; a bug is answered, not raised."""
    clients = []

    def start(**settings: Any) -> TestClient:
        client = TestClient(service(**settings).front, raise_server_exceptions=False)
        clients.append(client.__enter__())
        return client

    yield start
    for client in clients:
        client.__exit__(None, None, None)
