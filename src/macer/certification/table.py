"""certificates.tsv: a journal's certificates as a table that other tools of this field read."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

from macer.certification.header import Header
from macer.certification.journal import Contents
from macer.certification.record import Record
from macer.system.files import write_pieces

FIELDS_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")  # of every log
COLUMNS = (
    *FIELDS_COLUMNS,
    *("n0", "n", "alpha", "sigma", "bound", "selected", "p_a", "drawn", "counts"),
)


def write_table(contents: Contents, path: Path) -> None:
    """Write certificates.tsv: the field's six columns, then what they rest on.

    The same certificates give the same bytes, whenever and however they were made. Therefore the
    field's column time is 0.0; the journal has the seconds.
    """
    write_pieces(path, (line.encode() for line in table_lines(contents)))


def table_lines(contents: Contents) -> Iterator[str]:
    """The lines of the table that a journal gives, in the order of the images' numbers."""
    return lines_of(contents.header, contents.records, _unusual_columns(contents.header))


def lines_of(
    header: Header, records: Mapping[int, Record], unusual: Mapping[str, Any]
) -> Iterator[str]:
    """A table's lines: the names of its columns, then one line per image in the order of numbers.

    Args:
        unusual: further columns, each with one value for all images.
    """
    numbers = sorted(records)
    has_p_b = bool(numbers) and records[numbers[0]].certificate.p_b is not None
    yield "\t".join((*COLUMNS, *(("p_b",) if has_p_b else ()), *unusual)) + "\n"
    for idx in numbers:
        record = records[idx]
        upper = (_upper(record.certificate.p_b),) if has_p_b else ()
        yield "\t".join((*_row(header, record), *upper, *map(str, unusual.values()))) + "\n"


def rescored_lines(
    header: Header, records: Mapping[int, Record], *, bound: str, alpha: float
) -> Iterator[str]:
    """The lines of a table by another reading of a journal's counts; each says where it is from.

    `rescored` is the journal's own bound and α. `level` is "fixed" if this reading was fixed
    before the counts were drawn, else "chosen": then these are not certificates at level α.

    Args:
        header: the journal's.
        records: with the certificates by the bound at α.
    """
    level = "fixed" if header.fixed(bound, alpha) else "chosen"
    source = {"rescored": f"{header.bound} {header.alpha}", "level": level}
    read_anew = replace(header, bound=bound, alpha=alpha)
    return lines_of(read_anew, records, _unusual_columns(header) | source)


def _upper(p_b: float | None) -> str:
    """An upper bound in decimal, never smaller than it is; empty where there is none."""
    return "" if p_b is None else rounded(p_b, 12, ROUND_CEILING)


def _unusual_columns(header: Header) -> dict[str, Any]:
    """Columns that mark unusual certificates, so that the table alone shows what they are.

    These are certificates of one radius that was asked for, of training images, and of noise that
    is not exact.
    """
    columns: dict[str, Any] = {}
    if header.radius is not None:
        columns["asked"] = header.radius
    if header.split != "test":
        columns["split"] = header.split
    if not header.exact:
        columns["noise"] = "ordinary"
    return columns


def _row(header: Header, record: Record) -> tuple[str, ...]:
    certificate = record.certificate
    return (
        str(record.idx),
        str(record.label),
        str(certificate.label),
        rounded_down(certificate.radius),
        str(int(certificate.label == record.label)),
        "0.0",
        *map(str, (header.n0, header.n, header.alpha, header.sigma, header.bound)),
        str(certificate.selected),
        rounded_down(certificate.p_a, 12),
        str(certificate.drawn),
        ",".join(map(str, certificate.estimation)),
    )


def rounded_down(value: float, decimals: int = 6) -> str:
    """A radius in decimal, never larger than it is: 0.0 or six digits."""
    if value == 0:
        return "0.0"
    return rounded(value, decimals, ROUND_FLOOR)


def rounded(value: float, decimals: int, rounding: str) -> str:
    """A number in decimal, with so many digits behind the point."""
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding=rounding):f}"
