"""Logs of certificates as this field writes them: tab-separated, one line per image."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macer.certification.header import TRAINED_AT
from macer.certification.journal import Contents, read_journal
from macer.certification.scope import images_of
from macer.certification.table import table_lines
from macer.data.selection import Selection
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.reporting.classes import class_names
from macer.reporting.log_rows import (
    SETTINGS,
    check_columns,
    check_repeats,
    common_setting,
    log_lines,
    log_row,
)
from macer.runs.names import HELD_OUT, JOURNAL, PARTS, TABLE, is_rescored
from macer.system.errors import Mistake

RUNS_NAMED = 3  # in one message


@dataclass(frozen=True, eq=False)
class CertificateLog:
    """Certificates of one model, one entry per image in the order of idx; None: not recorded."""

    name: str
    idx: NDArray[np.int64]
    label: NDArray[np.int64]
    predict: NDArray[np.int64]
    radius: NDArray[np.float64]
    correct: NDArray[np.bool_]
    sigma: float | None = None
    n0: int | None = None
    n: int | None = None
    alpha: float | None = None
    bound: str | None = None
    split: str | None = None  # train, of images that were held out; else the images are test images
    noise: str | None = None  # ordinary, where it was not exact
    rescored: str | None = None  # the journal's own bound and α, where this table is by others
    level: str | None = None  # whether these were fixed before the counts were drawn, or chosen
    # Whether an image's class was estimated; a score skips images whose selected class is wrong.
    estimated: NDArray[np.bool_] | None = None
    asked: NDArray[np.int64] | None = None  # the images that were to be certified
    at: float | None = None  # the one radius that its certificates are of; None: largest radii
    classes: int | None = None
    class_names: tuple[str, ...] = ()
    dataset: str | None = None
    data_sha256: str | None = None  # of the data set's images and labels
    network: str | None = None
    trained_at: str | None = None  # the σ of the training, if it was another
    value_range: ValueRange = IMAGE_RANGE  # of the inputs; images where nothing else is recorded


def read_log(path: Path, *, one_radius: bool = False) -> CertificateLog:
    """Read a run folder's certificates.tsv, or a log file, plain or gzipped.

    A table beside a journal is derived from it, and must say what the journal says.

    Args:
        one_radius: accept certificates of one given radius too.
    """
    path = _with_journal(path)
    file = _log_file(path)
    header, *lines = log_lines(file)
    names = header.split("\t")
    check_columns(file, names)
    journal = path / JOURNAL
    contents = read_journal(journal) if journal.is_file() else None
    if contents:
        _check_against(contents, file, header, lines)
    rows = [log_row(names, line, f"{file}, line {i}") for i, line in enumerate(lines, start=2)]
    if not rows:
        raise Mistake(
            f"{file} has a header but no certificates"
            f"{_elsewhere(path) or ': certify at least one image'}"
        )
    at = common_setting(file, "asked", rows) if "asked" in names else None
    if at is not None and not one_radius:
        raise _of_one_radius(file, at)
    check_repeats(file, rows)
    rows.sort(key=lambda row: row["idx"])
    return CertificateLog(
        name=_name(file),
        idx=np.array([row["idx"] for row in rows], np.int64),
        label=np.array([row["label"] for row in rows], np.int64),
        predict=np.array([row["predict"] for row in rows], np.int64),
        radius=np.array([row["radius"] for row in rows], np.float64),
        correct=np.array([row["predict"] == row["label"] for row in rows], np.bool_),
        **{name: common_setting(file, name, rows) for name in SETTINGS if name in names},
        estimated=np.array([row["drawn"] > 0 for row in rows]) if "drawn" in names else None,
        asked=_asked(contents),
        at=at,
        classes=rows[0].get("counts"),
        class_names=class_names(path, contents),
        dataset=contents.header.dataset if contents else None,
        data_sha256=contents.header.data_sha256 if contents else None,
        network=contents.header.model.partition(",")[0] if contents else None,
        value_range=_value_range(contents),
        trained_at=(contents.header.model.partition(TRAINED_AT)[2] or None) if contents else None,
    )


def _with_journal(path: Path) -> Path:
    """A folder for its table, if a journal lies there: the two are read together."""
    return path.parent if path.name == TABLE and path.with_name(JOURNAL).is_file() else path


def _value_range(contents: Contents | None) -> ValueRange:
    """The least and the largest value of the inputs; that of images, where no journal says."""
    given = list(IMAGE_RANGE) if contents is None else contents.header.value_range
    return None if given is None else (given[0], given[1])


def _asked(contents: Contents | None) -> NDArray[np.int64] | None:
    """The images that a journal was asked for, if it says so."""
    if contents is None or contents.scope is None:
        return None
    return np.array(sorted(images_of(contents.scope)), np.int64)


def _check_against(contents: Contents, file: Path, header: str, lines: Sequence[str]) -> None:
    """Refuse a table that contradicts its journal; it may lack the last certificates."""
    first, *rest = (line.rstrip("\n") for line in table_lines(contents))
    known = {line.partition("\t")[0]: line for line in rest}
    for number, line in enumerate(lines, start=2):
        if header != first or line != known.get(line.partition("\t")[0]):
            raise Mistake(
                f"{file}, line {number}: the table must say what {JOURNAL} beside it says, got "
                f"{line[:60]!r}; `macer certify` writes it anew, `macer verify` checks the journal"
            )


def _of_one_radius(file: Path, radius: float) -> Mistake:
    """Certificates of one given radius say nothing of larger ones, and have no average."""
    return Mistake(
        f"{file} must hold certificates of largest radii, got those of radius {radius:g}, "
        "which have no ACR; the same `macer certify` tells what they say, `macer gate` judges them"
    )


def lacking(path: Path, log: CertificateLog) -> int:
    """How many certificates a run's journal has and its table lacks, as after a kill."""
    return len(_recorded(_with_journal(path)).difference(log.idx.tolist()))


def _recorded(path: Path) -> set[int]:
    """The images in a folder's journals, those of processes that were killed among them."""
    journals = [path / JOURNAL, *path.glob(f"{PARTS}/*/{JOURNAL}")]
    return {i for file in journals if file.is_file() for i in read_journal(file).records}


def _elsewhere(path: Path) -> str:
    """The end of a message: where certificates are that a table lacks, as after a kill."""
    count = len(_recorded(path)) if path.is_dir() else 0
    return f", but its journal has {count}; certify again to write the table" if count else ""


def _runs_in(path: Path) -> str:
    """The end of a message: which certified runs a folder holds, as one of comparisons does."""
    runs = sorted(str(file.parent) for file in path.glob(f"*/{TABLE}"))
    shown = f"{', '.join(runs[:RUNS_NAMED])}{' …' if len(runs) > RUNS_NAMED else ''}"
    return f"; name the runs in it: {shown}" if runs else ""


def select(log: CertificateLog, images: Selection) -> CertificateLog:
    """The log with these images alone; at least one must be there."""
    kept = images.holds(log.idx)
    if not kept.any():
        raise Mistake(
            f"no image of {log.name} is left by start {images.start}, stop {images.stop}, "
            f"skip {images.skip}: the log has {describe_images(log)}"
        )
    names = ("idx", "label", "predict", "radius", "correct", "estimated")
    arrays = {name: getattr(log, name) for name in names}
    asked = None if log.asked is None else log.asked[images.holds(log.asked)]
    narrowed = {name: a[kept] for name, a in arrays.items() if a is not None}
    return replace(log, **narrowed, asked=asked)


def describe_images(log: CertificateLog) -> str:
    """The images of a log: 500…999, or 0…9995, every 5th, or a count; training ones say so."""
    return f"training {_describe(log)}" if log.split == "train" else _describe(log)


def _describe(log: CertificateLog) -> str:
    idx = np.sort(log.idx)
    first, last = int(idx[0]), int(idx[-1])
    if first == last:
        return f"{first}"
    steps = np.unique(np.diff(idx))
    if len(steps) == 1 and steps[0] == 1:
        return f"{first}…{last}"
    if len(steps) == 1 and len(idx) > 2:
        return f"{first}…{last}, every {_ordinal(int(steps[0]))}"
    return f"{len(idx):,} images within {first}…{last}"


def _ordinal(number: int) -> str:
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _log_file(path: Path) -> Path:
    file = path / TABLE if path.is_dir() else path
    if not file.is_file() and path.is_dir():
        what_to_do = _elsewhere(path) or _runs_in(path) or "; certify the run first"
        raise Mistake(f"no certificates in {path}: expected {file}{what_to_do}")
    if not file.exists():
        raise Mistake(f"no log at {path}: expected a run folder or a log file")
    return file


def _name(file: Path) -> str:
    """A run's log has its folder's name; another its file's, without .gz, .tsv or .txt; or both."""
    if file.name == TABLE:
        folder = file.resolve().parent
        run = f"{folder.parent.name}/" if folder.name == HELD_OUT else ""
        return f"{run}{folder.name}"
    name = re.sub(r"(?<=.)(\.(tsv|txt))?(\.gz)?$", "", file.name, count=1)
    return f"{file.resolve().parent.name}/{name}" if is_rescored(file) else name
