"""The journal of certificates: append-only, one checksummed record per image.

Every line is the first 16 digits of a SHA-256 and a JSON object. The first line is the header,
which binds model, data and settings. The hash of every other line covers the header's hash, so
that a record of another journal does not count here. The second line states which images were
asked for; a later line does so when more are asked for. Each line after the header has its number.
A record counts once it is on the disk. It is read from there when it is needed: memory holds only
the place where each image's record begins.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from macer.certification.header import Header, difference
from macer.certification.record import Record
from macer.certification.scope import Scope, images_of, read_scope, scope_of
from macer.system.errors import Mistake
from macer.system.files import locked, remove_leftovers, write_atomically
from macer.system.signals import signals_deferred

LONGEST_LINE = 1 << 24  # a record of ten thousand classes takes a hundredth of it


class Records(Mapping[int, Record]):
    """A journal's records by image; ten thousand take a megabyte of memory, whatever they hold."""

    def __init__(self, path: Path, header_digest: bytes, *, exact: bool) -> None:
        self.path = path
        self.exact = exact  # the kind of noise, which the header says for all of them
        self.header_digest = header_digest  # which the records' digests cover
        self._offsets: dict[int, int] = {}

    def remember(self, idx: int, offset: int) -> bool:
        """Note the byte where an image's record begins; False if an earlier record of it counts."""
        return self._offsets.setdefault(idx, offset) == offset

    def __getitem__(self, idx: int) -> Record:
        with self.path.open("rb") as file:
            file.seek(self._offsets[idx])
            body = _body(self.header_digest, file.readline(LONGEST_LINE))
        if body is None:
            raise Mistake(f"{self.path} must not change while it is read; try again")
        try:
            record = Record.from_json(json.loads(body), exact=self.exact)
        except (Mistake, ValueError, RecursionError) as error:
            raise Mistake(
                f"{self.path} must hold records that this macer knows: {error}"
            ) from error
        if record.idx != idx:
            raise Mistake(
                f"{self.path} must hold one number per record, got {idx} and {record.idx}"
            )
        return record

    def __contains__(self, idx: object) -> bool:
        return idx in self._offsets

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


@dataclass
class Contents:
    """What could be read of a journal."""

    header: Header
    records: Records
    dropped: int = 0  # damaged lines
    scope: Scope | None = None  # the images that were asked for; an older journal does not say
    doubled: list[int] = field(default_factory=list)  # images with a second record, not counted
    misplaced: int = 0  # lines whose number does not follow that of the line before

    @property
    def missing(self) -> list[int]:
        """The images that were asked for and have no certificate."""
        return sorted(images_of(self.scope or ()).difference(self.records))


def _digest(header_digest: bytes, body: bytes) -> bytes:
    return hashlib.sha256(header_digest + body).hexdigest()[:16].encode()


def journal_line(header_digest: bytes, content: Mapping[str, Any]) -> bytes:
    """A line of a journal: a digest that binds it to its header, and the content in JSON.

    Args:
        header_digest: of the journal's first line; empty for that line itself.
    """
    body = json.dumps(content, separators=(",", ":")).encode()
    return _digest(header_digest, body) + b" " + body + b"\n"


def _body(header_digest: bytes, line: bytes) -> bytes | None:
    """The line's JSON, or None if a byte of it is not what was written."""
    digest, _, body = line.removesuffix(b"\n").partition(b" ")
    return body if digest == _digest(header_digest, body) else None


def read_journal(path: Path) -> Contents:
    """Every undamaged record of a journal; a damaged header is refused."""
    if not path.is_file():
        raise Mistake(f"no certificates in {path.parent}: expected {path}")
    with path.open("rb") as file:
        return _Reading(path, file).contents


# How each line after the header begins: enough to find a record without parsing all of it.
_BEGINNING = re.compile(rb'\{(?:"line":([0-9]{1,18}),)?"(idx|images)":(?:([0-9]{1,18}),)?')


class _Reading:
    """One pass over the lines of an open journal."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        first = file.readline(LONGEST_LINE)
        header = _read_header(path, first)
        self.header_digest = first.partition(b" ")[0]
        self.records = Records(path, self.header_digest, exact=header.exact)
        self.contents = Contents(header, self.records)
        self.numbered = header.format > 1
        self.last_number = 0
        self.asked: set[int] = set()
        self.last_line, self.last_offset, self.end = first, 0, len(first)
        while line := file.readline(LONGEST_LINE):
            self.last_line, self.last_offset = line, self.end
            self._take(line)
            self.end += len(line)
        if self.contents.scope is not None:
            self.contents.scope = scope_of(self.asked)

    def _take(self, line: bytes) -> None:
        body = _body(self.header_digest, line)
        begins = _BEGINNING.match(body) if body is not None else None
        if body is None or begins is None:
            if line != b"\n":
                self.contents.dropped += 1
            return
        number, kind, idx = begins.groups()
        self._count(number)
        if kind == b"images":
            self._take_scope(body)
        elif idx is None:
            self.contents.dropped += 1
        elif not self.records.remember(int(idx), self.end):
            self.contents.doubled.append(int(idx))

    def _count(self, number: bytes | None) -> None:
        if self.numbered:
            line_number = int(number or 0)
            self.contents.misplaced += line_number != self.last_number + 1
            self.last_number = max(line_number, self.last_number)

    def _take_scope(self, body: bytes) -> None:
        try:
            scope = read_scope(json.loads(body)["images"])
        except (Mistake, ValueError, RecursionError):
            self.contents.dropped += 1
            return
        self.asked |= images_of(scope)
        self.contents.scope = scope


def _read_header(path: Path, line: bytes) -> Header:
    body = _body(b"", line)
    if body is None:
        raise Mistake(f"{path} must begin with an undamaged header; move the file away")
    try:
        return Header.from_json(json.loads(body))
    except (Mistake, ValueError, RecursionError) as error:
        raise Mistake(f"{path} must have a header that this macer knows: {error}") from error


class Writer:
    """Appends lines to an open journal."""

    def __init__(self, file: BinaryIO, reading: _Reading) -> None:
        self._file = file
        self._reading = reading
        self.contents = reading.contents

    def append(self, records: Iterable[Record]) -> None:
        """Write records; on return they are on the disk and count."""
        fresh = list(records)
        with signals_deferred():  # or the table would lack records that are on the disk
            offsets = self._write([record.to_json() for record in fresh])
            for record, offset in zip(fresh, offsets, strict=True):
                self._reading.records.remember(record.idx, offset)

    def state(self, indices: Collection[int]) -> None:
        """State that these images are asked for, unless the journal says so already."""
        asked = self._reading.asked.union(indices)
        if asked == self._reading.asked:
            return
        _check_family(self._reading.records.path, self.contents.header, len(asked))
        with signals_deferred():
            self._write([{"images": scope_of(asked)}])
            self._reading.asked = asked
            self.contents.scope = scope_of(asked)

    def _write(self, contents: Sequence[Mapping[str, Any]]) -> list[int]:
        """Write lines to the disk; return the byte where each begins."""
        offsets, offset, lines = [], self._file.tell(), []
        for content in contents:
            lines.append(journal_line(self._reading.header_digest, self._numbered(content)))
            offsets.append(offset)
            offset += len(lines[-1])
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        return offsets

    def _numbered(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._reading.numbered:
            return content
        self._reading.last_number += 1
        return {"line": self._reading.last_number, **content}


def _check_family(path: Path, header: Header, count: int) -> None:
    """Refuse more images than share the level α: together they would not hold at it."""
    if header.family is not None and count > header.family:
        raise Mistake(
            f"family must be all images that share alpha, {header.family} in {path}, got {count}; "
            "certify all of them at once into another --out"
        )


@contextmanager
def open_journal(
    path: Path, header: Header, asked: Collection[int] | None = None
) -> Iterator[Writer]:
    """Begin a journal, or continue one with the same header; one writer at a time.

    Args:
        asked: the images that are to be certified, which the journal states; None states nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        remove_leftovers(path.parent)
        if not path.exists():
            # An older header may lack its format.
            write_atomically(path, journal_line(b"", {"format": header.format, **header.to_json()}))
        with path.open("r+b") as file:
            reading = _Reading(path, file)
            _check_same(path, reading.contents.header, header)
            _mend_last_line(file, reading)
            writer = Writer(file, reading)
            if asked is not None:
                writer.state(asked)
            yield writer


def _check_same(path: Path, written: Header, header: Header) -> None:
    if differs := difference(written, header):
        name, was, now = differs
        advice = "; or set ATEN_CPU_CAPABILITY alike" if name == "cpu" else ""
        raise Mistake(
            f"{name} must be {was} to continue {path}, got {now}; "
            f"choose another --out or move the journal away{advice}"
        )


def _mend_last_line(file: BinaryIO, reading: _Reading) -> None:
    """If the last write was cut off, remove the piece of a record, which never counted."""
    file.seek(reading.end)
    if reading.last_line.endswith(b"\n"):
        return
    if _body(reading.header_digest if reading.last_offset else b"", reading.last_line) is not None:
        file.write(b"\n")  # only the newline is missing
        return
    file.seek(reading.last_offset)
    file.truncate()
    reading.contents.dropped -= 1
