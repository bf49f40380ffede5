"""Read the rows of a log: a text of columns, each value checked."""

import gzip
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from macer.certification.table import FIELDS_COLUMNS
from macer.system.errors import Mistake
from macer.system.files import opened

SETTINGS = ("sigma", "n0", "n", "alpha", "bound", "split", "noise", "rescored", "level")

# ImageNet's 50,000 lines take about 5 MB; the limits stop a small gzip file from filling memory.
MOST_BYTES = 1 << 27
MOST_LINES = 1 << 20
LONGEST_LINE = 1 << 17  # characters; the counts of a thousand classes take some thousands

# Beyond these a number is no image's, and sums of radii would overflow.
MOST_IMAGES = 1 << 31
LARGEST = 1e6  # of radii and of sigma


def log_lines(file: Path) -> list[str]:
    """The lines of a log, within limits on its size."""
    content = _content(file)
    if len(content) > MOST_BYTES:
        raise Mistake(f"{file} must hold at most {MOST_BYTES >> 20} MiB of text, got more")
    if content.count(b"\n") > MOST_LINES:
        raise Mistake(f"{file} must hold at most {MOST_LINES:,} lines, got more")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Mistake(f"{file} must be tab-separated text, plain or gzipped: {error}") from error
    if not text.strip():
        raise Mistake(f"{file} is empty: expected the columns {' '.join(FIELDS_COLUMNS)}")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if (longest := max(map(len, lines))) > LONGEST_LINE:
        raise Mistake(
            f"{file} must have lines of at most {LONGEST_LINE:,} characters, got {longest:,}"
        )
    return lines


def _content(file: Path) -> bytes:
    """The bytes of a file, unzipped if they are zipped: no more than are needed to refuse it."""
    with opened(file, limit=MOST_BYTES) as raw:
        gzipped = raw.peek(2)[:2] == b"\x1f\x8b"
        stream = gzip.GzipFile(fileobj=raw) if gzipped else raw
        try:
            return stream.read(MOST_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Mistake(
                f"{file} must be tab-separated text, plain or gzipped: {error}"
            ) from error


def check_columns(file: Path, names: Sequence[str]) -> None:
    """Refuse a header without the field's columns, or with one twice."""
    missing = [name for name in FIELDS_COLUMNS if name not in names]
    if missing:
        raise Mistake(
            f"{file}: the header must have the tab-separated columns {' '.join(FIELDS_COLUMNS)}, "
            f"got no {', '.join(missing)}"
        )
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise Mistake(f"{file}: each column must appear once, got {repeated[:40]!r} twice")


def log_row(names: Sequence[str], line: str, where: str) -> dict[str, Any]:
    """The values of a line by their columns."""
    texts = line.split("\t")
    if len(texts) != len(names):
        raise Mistake(
            f"{where}: a row must have {len(names)} tab-separated values, got {line[:80]!r}"
        )
    row = {
        name: _value(name, text, where)
        for name, text in zip(names, texts, strict=True)
        if name in _RULES
    }
    if row["correct"] != (row["predict"] == row["label"]):
        raise Mistake(
            f"{where}: correct must be 1 where predict is label and 0 elsewhere, got "
            f"{row['correct']} for predict {row['predict']} and label {row['label']}"
        )
    return row


def check_repeats(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse two lines of one image."""
    seen: dict[int, int] = {}
    for line, row in enumerate(rows, start=2):
        first = seen.setdefault(row["idx"], line)
        if first != line:
            raise Mistake(
                f"{file}, line {line}: each image must appear once, got idx {row['idx']} "
                f"again (first on line {first})"
            )


def common_setting(file: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The one value that a setting has in all rows."""
    values = list(dict.fromkeys(row[name] for row in rows))
    if len(values) > 1:
        raise Mistake(
            f"{file}: {name} must be the same for every image, got {values[0]} and {values[1]}; "
            "split the log"
        )
    return values[0]


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[-+.0-9a-zA-Z]+", text):
        raise ValueError(text)
    return float(text)


def clock_seconds(text: str) -> float:
    """Seconds from a number, or from a clock's h:mm:ss with days before it or not."""
    clock = re.fullmatch(
        r"(?:([0-9]{1,9}) days?, )?([0-9]{1,9}):([0-9]{2}):([0-9]{2}(?:\.[0-9]+)?)", text
    )
    if clock is None:
        return _number(text)
    days, hours, minutes, seconds = clock.groups(default="0")
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


# Each column's reader, what must hold of its value, and the same in words.
_RULES: Mapping[str, tuple[Callable[[str], Any], Callable[[Any], bool], str]] = {
    "idx": (_whole, lambda i: 0 <= i < MOST_IMAGES, "a whole number ≥ 0 and below 2³¹"),
    "label": (_whole, lambda c: 0 <= c < MOST_IMAGES, "a whole number ≥ 0 and below 2³¹"),
    "predict": (_whole, lambda c: -1 <= c < MOST_IMAGES, "a class, or -1 for an abstention"),
    "radius": (_number, lambda r: 0 <= r < LARGEST, "a finite number ≥ 0 and below 10⁶"),
    "correct": (_whole, lambda c: c in (0, 1), "0 or 1"),
    "time": (clock_seconds, lambda t: math.isfinite(t) and t >= 0, "seconds or h:mm:ss"),
    "sigma": (_number, lambda s: 1 / LARGEST <= s < LARGEST, "a number > 0, from 10⁻⁶ to 10⁶"),
    "n0": (_whole, lambda n: n >= 1, "a whole number ≥ 1"),
    "n": (_whole, lambda n: n >= 1, "a whole number ≥ 1"),
    "alpha": (_number, lambda a: 0 < a < 1, "between 0 and 1"),
    "bound": (str, lambda _: True, "a name"),
    "split": (str, lambda name: name == "train", "train, or the column left out"),
    "noise": (str, lambda name: name == "ordinary", "ordinary, or the column left out"),
    "rescored": (str, lambda _: True, "a bound and its α"),
    "level": (str, lambda name: name in ("fixed", "chosen"), "fixed or chosen"),
    "asked": (_number, lambda r: math.isfinite(r) and r >= 0, "a number ≥ 0"),
    "drawn": (_whole, lambda n: n >= 0, "a whole number ≥ 0"),
    "counts": (lambda text: text.count(",") + 1, lambda _: True, "one count per class"),
}


def _value(name: str, text: str, where: str) -> Any:
    """A column's value; an empty setting is one that the log does not say."""
    if name in SETTINGS and not text:
        return None
    read, holds, requirement = _RULES[name]
    try:
        value = read(text)
    except ValueError:
        value = None
    if value is None or not holds(value):
        raise Mistake(f"{where}: {name} must be {requirement}, got {text[:40]!r}")
    return value
