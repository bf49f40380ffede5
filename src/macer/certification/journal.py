"""The journal of certificates: append-only, one checksummed record per image.

Every line is the first 16 digits of a SHA-256 and a JSON object. The first line is the header,
which binds model, data and settings; the hash of every other line covers the header's, so that a
record of another journal is not taken for one of this. The second line states which images were
asked for, and so does a later one when more are. Each line after the header says its number. A
record counts once it is on the disk, and is read from there when it is asked for: memory holds
only where each image's record begins.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any, BinaryIO

from macer.certification.certificate import Certificate
from macer.certification.header import FORMAT, Header, check_header, check_record, difference, entry
from macer.certification.scope import Scope, images_of, read_scope, scope_of
from macer.errors import Mistake
from macer.system.files import locked, remove_leftovers, write_atomically, write_pieces
from macer.system.signals import signals_deferred

JOURNAL = "certificates.journal"  # its name in a folder
HELD_OUT = "held-out"  # a folder in a run, of certificates of images that it held out
PARTS = ".parts"  # a folder there, of processes that certify together; see sharding.py

LONGEST_LINE = 1 << 24  # a record of ten thousand classes takes a hundredth of it

COLUMNS = (
    *("idx", "label", "predict", "radius", "correct", "time"),  # the field's
    *("n0", "n", "alpha", "sigma", "bound", "selected", "p_a", "drawn", "counts"),
)


@dataclass(frozen=True)
class Record:
    """An image's certificate and what it is a certificate of."""

    idx: int  # the image's number in its data set
    label: int  # its true class
    certificate: Certificate
    seconds: float
    pixels: str = ""  # their SHA-256, where the header's of the data does not cover them


class Records(Mapping[int, Record]):
    """A journal's records by image; ten thousand take a megabyte of memory, whatever they hold."""

    def __init__(self, path: Path, header_digest: bytes, *, exact: bool) -> None:
        self.path = path
        self.exact = exact  # the kind of noise, which the header says for all of them
        self.header_digest = header_digest  # which the records' digests cover
        self._offsets: dict[int, int] = {}

    def remember(self, idx: int, offset: int) -> bool:
        """Whether this is the image's first record, the one that counts; it begins at this byte."""
        return self._offsets.setdefault(idx, offset) == offset

    def __getitem__(self, idx: int) -> Record:
        with self.path.open("rb") as file:
            file.seek(self._offsets[idx])
            body = _body(self.header_digest, file.readline(LONGEST_LINE))
        if body is None:
            raise Mistake(f"{self.path} must not change while it is read; try again")
        try:
            record = _record(json.loads(body), exact=self.exact)
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


def _line(header_digest: bytes, content: Mapping[str, Any]) -> bytes:
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


# How each line after the header begins, by which its record is found without reading all of it.
_BEGINNING = re.compile(rb'\{(?:"line":([0-9]{1,18}),)?"(idx|images)":(?:([0-9]{1,18}),)?')


class _Reading:
    """One pass over the lines of an open journal."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        first = file.readline(LONGEST_LINE)
        header = _read_header(path, first)
        self.header_digest = first.partition(b" ")[0]
        self.records = Records(path, self.header_digest, exact=header["exact"])
        self.contents = Contents(header, self.records)
        self.numbered = entry(header, "format") > 1
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
            self.contents.dropped += line != b"\n"
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
            here = int(number or 0)
            self.contents.misplaced += here != self.last_number + 1
            self.last_number = max(here, self.last_number)

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
        return check_header(json.loads(body))
    except (Mistake, ValueError, RecursionError) as error:
        raise Mistake(f"{path} must have a header that this macer knows: {error}") from error


def _record(content: object, *, exact: bool) -> Record:
    checked = check_record(content)
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in checked["certificate"].items()
    }
    return Record(
        checked["idx"],
        checked["label"],
        Certificate(**fields, exact=exact),
        checked["seconds"],
        checked.get("pixels", ""),
    )


def _content(record: Record) -> dict[str, Any]:
    content = {name: value for name, value in asdict(record).items() if value != ""}
    del content["certificate"]["exact"]
    return content


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
            begins = self._write([_content(record) for record in fresh])
            for record, begin in zip(fresh, begins, strict=True):
                self._reading.records.remember(record.idx, begin)

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
        """Write lines to the disk; return where each begins."""
        begins, offset, lines = [], self._file.tell(), []
        for content in contents:
            lines.append(_line(self._reading.header_digest, self._numbered(content)))
            begins.append(offset)
            offset += len(lines[-1])
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        return begins

    def _numbered(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._reading.numbered:
            return content
        self._reading.last_number += 1
        return {"line": self._reading.last_number, **content}


def _check_family(path: Path, header: Header, count: int) -> None:
    """Refuse more images than share the level α: together they would not hold at it."""
    family = entry(header, "family")
    if family is not None and count > family:
        raise Mistake(
            f"family must be all images that share alpha, {family} in {path}, got {count}; certify "
            "all of them at once into another --out"
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
            header = {"format": FORMAT, **header}
            write_atomically(path, _line(b"", check_header(json.loads(json.dumps(header)))))
        with path.open("r+b") as file:
            reading = _Reading(path, file)
            _check_same(path, reading.contents.header, json.loads(json.dumps(header)))
            _mend_last_line(file, reading)
            writer = Writer(file, reading)
            if asked is not None:
                writer.state(asked)
            yield writer


def _check_same(path: Path, found: Header, header: Header) -> None:
    if differs := difference(found, header):
        name, was, now = differs
        advice = "; or set ATEN_CPU_CAPABILITY alike" if name == "cpu" else ""
        raise Mistake(
            f"{name} must be {was} to continue {path}, got {now}; "
            f"choose another --out or move the journal away{advice}"
        )


def _mend_last_line(file: BinaryIO, reading: _Reading) -> None:
    """Where the last write was cut off, remove the part of a record, which never counted."""
    file.seek(reading.end)
    if reading.last_line.endswith(b"\n"):
        return
    if _body(reading.header_digest if reading.last_offset else b"", reading.last_line) is not None:
        file.write(b"\n")  # only the newline is missing
        return
    file.seek(reading.last_offset)
    file.truncate()
    reading.contents.dropped -= 1


def merge_journals(folders: Sequence[Path], out: Path, *, known_wins: bool = False) -> Contents:
    """Put the certificates of several folders into one journal; all headers must be the same.

    So machines or processes that certify some images each make the table that one would make.
    Nothing is written unless all of them agree. The result's damaged lines are the parts'.

    Args:
        known_wins: keep what the result has of an image, even if a part says otherwise, as one
            that was certified again on a GPU may.
    """
    parts = [read_journal(folder / JOURNAL) for folder in folders]
    header = {"format": entry(parts[0].header, "format"), **parts[0].header}
    for folder, part in zip(folders, parts, strict=True):
        if differs := difference(header, part.header):
            name, first, other = differs
            raise Mistake(f"{name} must be {first} in {folder} as in {folders[0]}, got {other}")
    scopes = [part.scope for part in parts if part.scope is not None]
    with open_journal(out / JOURNAL, header) as journal:
        known = journal.contents.records
        theirs = [part.records for part in parts]
        _check_agreement(theirs if known_wins else [known, *theirs])
        if len(scopes) == len(parts):  # else the result does not say what was asked for either
            journal.state({i for scope in scopes for i in images_of(scope)})
        for part in parts:
            journal.append(record for idx, record in part.records.items() if idx not in known)
        write_table(journal.contents, out / "certificates.tsv")
    return replace(journal.contents, dropped=sum(part.dropped for part in parts))


def _check_agreement(sources: Sequence[Records]) -> None:
    """An image that several journals have must have the same certificate in all of them."""
    first: dict[int, Records] = {}
    for records in sources:
        for idx in records:
            known = first.setdefault(idx, records)
            if known is not records and _claim(known[idx]) != _claim(records[idx]):
                raise Mistake(
                    f"image {idx} of {records.path.parent} must have the certificate it has in "
                    f"{known.path.parent}, got another one"
                )


def _claim(record: Record) -> tuple[object, ...]:
    return record.certificate, record.label, record.pixels


def write_table(contents: Contents, path: Path) -> None:
    """Write certificates.tsv: the field's six columns, then what they rest on.

    The same certificates give the same bytes, whenever and however they were made. Therefore the
    field's column time is 0.0; the journal has the seconds.
    """
    write_pieces(path, (line.encode() for line in table_lines(contents)))


def table_lines(contents: Contents) -> Iterator[str]:
    """The table that a journal gives, image after image."""
    header = contents.header
    unusual = _unusual(header)
    yield "\t".join((*COLUMNS, *unusual)) + "\n"
    for idx in sorted(contents.records):
        row = (*_row(header, contents.records[idx]), *map(str, unusual.values()))
        yield "\t".join(row) + "\n"


def _unusual(header: Header) -> dict[str, Any]:
    """Columns of unusual certificates: whoever has the table alone must not take them for usual.

    Those of one radius that was asked for, of training images, and of noise that is not exact.
    """
    columns = {"asked": header["radius"], "split": header.get("split")}
    if not header["exact"]:
        columns["noise"] = "ordinary"
    return {name: value for name, value in columns.items() if value is not None}


def _row(header: Header, record: Record) -> tuple[str, ...]:
    certificate = record.certificate
    return (
        str(record.idx),
        str(record.label),
        str(certificate.label),
        rounded_down(certificate.radius),
        str(int(certificate.label == record.label)),
        "0.0",
        *(str(header[name]) for name in ("n0", "n", "alpha", "sigma", "bound")),
        str(certificate.selected),
        rounded_down(certificate.p_a, 12),
        str(certificate.drawn),
        ",".join(map(str, certificate.estimation)),
    )


def rounded_down(value: float, decimals: int = 6) -> str:
    """A radius in decimal, never larger than it is: 0.0 or six digits."""
    if value == 0:
        return "0.0"
    digits = Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR)
    return f"{digits:f}"
