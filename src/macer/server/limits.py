"""What a service admits: sizes, times, requests at once, and who may ask."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from macer.system.errors import Mistake
from macer.system.files import read_text

_LARGEST_KEYS = 1 << 20  # bytes of a file of keys
_SHORTEST_KEY = 16  # characters
_LARGEST_KEY = 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that a service does for a request, and for all of them."""

    body: int = 4 << 20  # bytes
    pixels: int = 1 << 24  # of an image before it is cropped
    seconds: float = 30.0  # of a deadline
    n: int = 100_000  # samples
    at_once: int = 16  # requests that are sampled together
    queue: int = 256  # requests that wait
    per_client: int = 64  # requests of one key, or of one address where there are no keys

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name == "queue" else 1
            if not least <= getattr(self, field.name) < float("inf"):
                value = getattr(self, field.name)
                raise Mistake(f"{field.name} must be at least {least}, got {value}")


class Refusal(Exception):
    """A request that is not answered: a status of HTTP, a kind, and one line."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class Keys:
    """The keys of those who may ask; with no keys, everybody may."""

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        self._keys = None if keys is None else [_digest(key) for key in keys]

    @property
    def needed(self) -> bool:
        """Whether a request must bring a key."""
        return self._keys is not None

    def client(self, authorization: str | None, address: str) -> str:
        """The client: its key's number, or its address; a wrong key, or none, is refused.

        Every key is compared, by its hash, in a time that does not depend on its characters.
        """
        if self._keys is None:
            return address
        scheme, _, given = (authorization or "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        offered = _digest(given.strip())
        found = [i for i, key in enumerate(self._keys) if hmac.compare_digest(key, offered)]
        if not (is_bearer and found):
            raise Refusal(401, "key", "a key must be given as Authorization: Bearer KEY")
        return f"key {found[0]}"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def read_keys(path: Path) -> Keys:
    """The keys of a file, one in a line; empty lines and lines that begin with # do not count."""
    lines = [line.strip() for line in read_text(path, limit=_LARGEST_KEYS).splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise Mistake(f"{path} must have at least one key, got none")
    for number, key in enumerate(keys, 1):
        if not _SHORTEST_KEY <= len(key) <= _LARGEST_KEY or " " in key or not key.isascii():
            raise Mistake(
                f"{path} must have keys of {_SHORTEST_KEY} to {_LARGEST_KEY} characters of ASCII "
                f"without spaces, got {len(key)} characters in key {number}"
            )
    return Keys(keys)


class Admission:
    """Counts the requests that are being answered; those above a limit are refused at once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inside: Counter[str] = Counter()

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Admit a request while the block runs; only the event loop's thread calls this."""
        limits = self.limits
        if self.inside[client] >= limits.per_client:
            most = f"at most {limits.per_client} requests of a client are answered at once"
            raise Refusal(429, "per_client", f"{most}; wait for one of yours to end")
        if self.inside.total() >= limits.at_once + limits.queue:
            raise Refusal(503, "busy", "all places are taken; ask again in a second")
        self.inside[client] += 1
        try:
            yield
        finally:
            self.inside[client] -= 1
            if not self.inside[client]:
                del self.inside[client]
