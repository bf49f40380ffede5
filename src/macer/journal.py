"""The journal of certificates: append-only, one checksummed record an image.

Every line is the first 16 digits of a SHA-256 and a JSON object. The first line is the header,
which binds weights, data and settings; a record's hash covers the header's, so that a record of
another journal is not taken for one of this. A record counts once it is on the disk, and is read
from there when it is asked for: memory holds only where each image's record begins.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from macer.files import locked, remove_leftovers, write_atomically, write_pieces
from macer.mistake import Mistake
from macer.stopping import finishing_first

if TYPE_CHECKING:
    from macer.certification import Certificate

Header = dict[str, Any]

JOURNAL = "certificates.journal"  # its name in a folder
HELD_OUT = "held-out"  # a folder in a run, of certificates of images that it held out
PARTS = ".parts"  # a folder there, of processes that certify together; see sharding.py

COLUMNS = (
    *("idx", "label", "predict", "radius", "correct", "time"),  # the field's
    *("n0", "n", "alpha", "sigma", "bound", "selected", "p_a", "drawn", "counts"),
)

# Columns of unusual certificates, by the header's entry: of one radius that was asked for, and of
# training images. Whoever has the table alone must not take them for the usual ones.
UNUSUAL = {"radius": "asked", "split": "split"}


@dataclass(frozen=True)
class Record:
    """An image's certificate and what it is a certificate of."""

    idx: int  # the image's number in its data set
    label: int  # its true class
    certificate: "Certificate"
    seconds: float
    pixels: str = ""  # their SHA-256, where the header's of the data does not cover them


class Records(Mapping[int, Record]):
    """A journal's records by image; ten thousand take a megabyte of memory, whatever they hold."""

    def __init__(self, path: Path, seed: bytes) -> None:
        self.path = path
        self.seed = seed  # the header's hash, which the records' hashes cover
        self._places: dict[int, int] = {}

    def place(self, idx: int, begin: int) -> None:
        """An image's record begins at this byte; the first one counts."""
        self._places.setdefault(idx, begin)

    def __getitem__(self, idx: int) -> Record:
        with self.path.open("rb") as file:
            file.seek(self._places[idx])
            content = _body(self.seed, file.readline())
        if content is None:
            raise Mistake(f"{self.path} must not change while it is read; try again")
        return _record(content)

    def __contains__(self, idx: object) -> bool:
        return idx in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True)
class Contents:
    """What could be read of a journal."""

    header: Header
    records: Records
    dropped: int  # damaged lines


def _digest(seed: bytes, body: bytes) -> bytes:
    return hashlib.sha256(seed + body).hexdigest()[:16].encode()


def _line(seed: bytes, content: dict[str, Any]) -> bytes:
    body = json.dumps(content, separators=(",", ":")).encode()
    return _digest(seed, body) + b" " + body + b"\n"


def _body(seed: bytes, line: bytes) -> dict[str, Any] | None:
    """The line's object, or None if a byte of it is not what was written."""
    digest, _, body = line.removesuffix(b"\n").partition(b" ")
    if digest != _digest(seed, body):
        return None
    content: dict[str, Any] = json.loads(body)
    return content


def read_journal(path: Path) -> Contents:
    """Every undamaged record of a journal; a damaged header is refused."""
    if not path.is_file():
        raise Mistake(f"no certificates in {path.parent}: expected {path}")
    with path.open("rb") as file:
        first = file.readline()
        header = _body(b"", first)
        if header is None:
            raise Mistake(f"{path} must begin with an undamaged header; move the file away")
        records = Records(path, seed=first.partition(b" ")[0])
        dropped = _find_records(file, len(first), records)
    return Contents(header, records, dropped)


def _find_records(lines: Iterable[bytes], begin: int, records: Records) -> int:
    """Place the record of each line, the first of which begins at a byte; count the damaged."""
    dropped = 0
    for line in lines:
        content = _body(records.seed, line)
        if content is None:
            dropped += line != b"\n"
        else:
            records.place(content["idx"], begin)
        begin += len(line)
    return dropped


def _record(content: dict[str, Any]) -> Record:
    from macer.certification import Certificate  # and torch, which a list of images does not need

    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content["certificate"].items()
    }
    certificate = Certificate(**fields)
    return Record(**content | {"certificate": certificate})


def _content(record: Record) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if value != ""}


class Writer:
    """Appends records to an open journal."""

    def __init__(self, file: BinaryIO, contents: Contents) -> None:
        self._file = file
        self.contents = contents

    def append(self, records: Iterable[Record]) -> None:
        """Write records; on return they are on the disk and count."""
        fresh = list(records)
        lines = [_line(self.contents.records.seed, _content(record)) for record in fresh]
        with finishing_first():  # or the table would lack records that are on the disk
            begin = self._file.tell()
            self._file.write(b"".join(lines))
            self._file.flush()
            os.fsync(self._file.fileno())
            for record, line in zip(fresh, lines, strict=True):
                self.contents.records.place(record.idx, begin)
                begin += len(line)


@contextmanager
def open_journal(path: Path, header: Header) -> Iterator[Writer]:
    """Begin a journal, or continue one with the same header; one writer at a time."""
    header = json.loads(json.dumps(header))
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        remove_leftovers(path.parent)
        if not path.exists():
            write_atomically(path, _line(b"", header))
        _check_header(path, read_journal(path).header, header)
        _mend_last_line(path)
        contents = read_journal(path)
        with path.open("ab") as file:
            yield Writer(file, contents)


def _check_header(path: Path, found: Header, header: Header) -> None:
    if difference := _difference(found, header):
        name, was, now = difference
        raise Mistake(
            f"{name} must be {was} to continue {path}, got {now}; "
            "choose another --out or move the journal away"
        )


def _difference(a: Header, b: Header) -> tuple[str, Any, Any] | None:
    """The first entry in which two headers differ, with both its values."""
    a, b = ({"split": "test", "row_by_row": False} | header for header in (a, b))
    differing = (name for name in {**a, **b} if a.get(name) != b.get(name))
    name = next(differing, None)
    return None if name is None else (name, a.get(name), b.get(name))


def _mend_last_line(path: Path) -> None:
    """Where the last write was cut off, remove the part of a record, which never counted."""
    with path.open("r+b") as file:
        line = header = file.readline()
        begin, end = 0, len(header)
        for line in file:
            begin, end = end, end + len(line)
        if line.endswith(b"\n"):
            return
        if begin == 0 or _body(header.partition(b" ")[0], line) is not None:
            file.write(b"\n")  # only the newline is missing
        else:
            file.truncate(begin)


def merge_journals(folders: Sequence[Path], out: Path, *, known_wins: bool = False) -> Contents:
    """Put the certificates of several folders into one journal; all headers must be the same.

    So machines or processes that certify some images each make the table that one would make.
    Nothing is written unless all of them agree. The result's damaged lines are the parts'.

    Args:
        known_wins: keep what the result has of an image, even if a part says otherwise, as one
            that was certified again on a GPU may.
    """
    parts = [read_journal(folder / JOURNAL) for folder in folders]
    header = parts[0].header
    for folder, part in zip(folders, parts, strict=True):
        if difference := _difference(header, part.header):
            name, first, other = difference
            raise Mistake(f"{name} must be {first} in {folder} as in {folders[0]}, got {other}")
    with open_journal(out / JOURNAL, header) as journal:
        known = journal.contents.records
        theirs = [part.records for part in parts]
        _check_agreement(theirs if known_wins else [known, *theirs])
        for part in parts:
            journal.append(record for idx, record in part.records.items() if idx not in known)
        write_table(journal.contents, out / "certificates.tsv")
    dropped = sum(part.dropped for part in parts)
    return Contents(header, known, dropped)


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
    unusual = {
        name: header[entry] for entry, name in UNUSUAL.items() if header.get(entry) is not None
    }
    yield "\t".join((*COLUMNS, *unusual)) + "\n"
    for idx in sorted(contents.records):
        row = (*_row(header, contents.records[idx]), *map(str, unusual.values()))
        yield "\t".join(row) + "\n"


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
