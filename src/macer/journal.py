"""The journal of certificates: append-only, one checksummed record an image.

Every line is the first 16 digits of a SHA-256 and a JSON object. The first line is the header,
which binds weights, data and settings; a record's hash covers the header's, so that a record of
another journal is not taken for one of this. A record counts once it is on the disk.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, BinaryIO

from macer.certification import Certificate
from macer.files import locked, sync_folder, write_atomically
from macer.mistake import Mistake

Header = dict[str, Any]

COLUMNS = (
    *("idx", "label", "predict", "radius", "correct", "time"),  # the field's
    *("n0", "n", "alpha", "sigma", "bound", "selected", "p_a", "counts"),
)


@dataclass(frozen=True)
class Record:
    """An image's certificate and what it is a certificate of."""

    idx: int  # the image's number in its data set
    label: int  # its true class
    certificate: Certificate
    seconds: float


@dataclass(frozen=True)
class Contents:
    """What could be read of a journal."""

    header: Header
    records: dict[int, Record]
    dropped: int  # damaged lines


def _digest(seed: str, body: str) -> str:
    return hashlib.sha256((seed + body).encode()).hexdigest()[:16]


def _line(seed: str, content: dict[str, Any]) -> str:
    body = json.dumps(content, separators=(",", ":"))
    return f"{_digest(seed, body)} {body}\n"


def _body(seed: str, line: str) -> dict[str, Any] | None:
    """The line's object, or None if a byte of it is not what was written."""
    digest, _, body = line.partition(" ")
    if digest != _digest(seed, body):
        return None
    content: dict[str, Any] = json.loads(body)
    return content


def read_journal(path: Path) -> Contents:
    """Every undamaged record of a journal; a damaged header is refused."""
    if not path.is_file():
        raise Mistake(f"no certificates in {path.parent}: expected {path}")
    first, *lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    header = _body("", first)
    if header is None:
        raise Mistake(f"{path} must begin with an undamaged header; move the file away")
    seed = first.partition(" ")[0]
    records: dict[int, Record] = {}
    dropped = 0
    for line in lines:
        if not line:
            continue
        content = _body(seed, line)
        if content is None:
            dropped += 1
        else:
            records.setdefault(content["idx"], _record(content))
    return Contents(header, records, dropped)


def _record(content: dict[str, Any]) -> Record:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content["certificate"].items()
    }
    return Record(content["idx"], content["label"], Certificate(**fields), content["seconds"])


class Writer:
    """Appends records to an open journal."""

    def __init__(self, file: BinaryIO, contents: Contents) -> None:
        self._file = file
        self._seed = _line("", contents.header).partition(" ")[0]
        self.contents = contents

    def append(self, records: Iterable[Record]) -> None:
        """Write records; on return they are on the disk and count."""
        fresh = list(records)
        self._file.write("".join(_line(self._seed, asdict(r)) for r in fresh).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        for record in fresh:
            self.contents.records.setdefault(record.idx, record)


@contextmanager
def open_journal(path: Path, header: Header) -> Iterator[Writer]:
    """Begin a journal, or continue one with the same header; one writer at a time."""
    header = json.loads(json.dumps(header))
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        contents = _continued(path, header) if path.exists() else Contents(header, {}, 0)
        if not path.exists():
            write_atomically(path, _line("", header).encode())
            sync_folder(path.parent)
        with path.open("ab") as file:
            yield Writer(file, contents)


def _continued(path: Path, header: Header) -> Contents:
    contents = read_journal(path)
    for name in {**contents.header, **header}:
        was, now = contents.header.get(name), header.get(name)
        if was != now:
            raise Mistake(
                f"{name} must be {was} to continue {path}, got {now}; "
                "choose another --out or move the journal away"
            )
    if not path.read_bytes().endswith(b"\n"):  # the last write was cut off
        with path.open("ab") as file:
            file.write(b"\n")
    return contents


def write_table(contents: Contents, path: Path) -> None:
    """Write certificates.tsv: the field's six columns, then what they rest on."""
    write_atomically(path, table_text(contents).encode())


def table_text(contents: Contents) -> str:
    """The table that a journal gives, image after image."""
    rows = [_row(contents.header, contents.records[idx]) for idx in sorted(contents.records)]
    return "\n".join("\t".join(row) for row in [COLUMNS, *rows]) + "\n"


def _row(header: Header, record: Record) -> tuple[str, ...]:
    certificate = record.certificate
    return (
        str(record.idx),
        str(record.label),
        str(certificate.label),
        rounded_down(certificate.radius),
        str(int(certificate.label == record.label)),
        f"{record.seconds:.3f}",
        *(str(header[name]) for name in ("n0", "n", "alpha", "sigma", "bound")),
        str(certificate.selected),
        rounded_down(certificate.p_a, 12),
        ",".join(map(str, certificate.estimation)),
    )


def rounded_down(value: float, decimals: int = 6) -> str:
    """A radius in decimal, never larger than it is: 0.0 or six digits."""
    if value == 0:
        return "0.0"
    digits = Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR)
    return f"{digits:f}"
