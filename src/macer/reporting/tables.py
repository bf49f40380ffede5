"""Tables of certified accuracy and average certified radius: Markdown, LaTeX, CSV, terminal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from macer.reporting import markup
from macer.reporting.intervals import (
    INTERVALS_NOTE,
    ClassScore,
    Interval,
    acr_interval,
    class_scores,
    interval_text,
    share_intervals,
)
from macer.reporting.logs import CertificateLog, describe_images
from macer.reporting.notes import general_notes, given_up_note, limits, trained_note
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    certified_accuracy,
    certified_counts,
    paired_difference,
    standard_error,
    usual_radii,
)
from macer.reporting.texts import (
    accuracy_texts,
    images_text,
    radius_text,
    setting,
    signed_with_error,
    thousands,
    with_error,
)
from macer.system.errors import Mistake
from macer.system.text import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

# The radii of tables that programs read, the same for every log. The field's σ ≤ 1 and
# n = 100,000 certify up to 3.81.
RADII = tuple(0.25 * i for i in range(17))

USUAL_BOUND = "clopper-pearson"  # the field's; tables name the bound where a row has another


@dataclass(frozen=True)
class ScoreRow:
    """A log's row of a table; None stands for what is not recorded or cannot be compared."""

    name: str
    sigma: float | None
    accuracies: tuple[float, ...]
    acr: float
    standard_error: float
    difference: Difference | None
    images: int
    which: str
    n0: int | None
    n: int | None
    alpha: float | None
    bound: str | None
    asked: int | None  # images that were to be certified, with those of the log
    noise: str | None  # "ordinary" where it was not exact
    rescored: str | None  # the bound and α of the journal whose counts were read anew
    level: str | None  # "fixed" before those counts were drawn, or "chosen"
    accuracy_intervals: tuple[Interval, ...]  # one per accuracy
    acr_interval: Interval | None
    classes: tuple[ClassScore, ...]


@dataclass(frozen=True)
class ScoreTable:
    """Certified accuracy at radii and ACR of several logs, and what to know when reading them."""

    radii: tuple[float, ...]
    rows: tuple[ScoreRow, ...]
    notes: tuple[str, ...]


def tabulate(logs: Sequence[CertificateLog], radii: Sequence[float] | None = None) -> ScoreTable:
    """The table of the logs; each is compared with the first if they have images in common."""
    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    radii = usual_radii(logs) if radii is None else tuple(radii)
    if any(not math.isfinite(r) or r < 0 for r in radii):
        raise Mistake(f"radii must be finite and ≥ 0, got {', '.join(f'{r:g}' for r in radii)}")
    if len(texts := [radius_text(r) for r in radii]) > len(set(texts)):
        raise Mistake(f"radii must differ in six digits, got {', '.join(texts)}")
    differences, obstacles = _compare(logs)
    rows = [_row(log, radii, difference) for log, difference in zip(logs, differences, strict=True)]
    of_logs = filter(None, [*map(trained_note, logs), *map(given_up_note, logs)])
    notes = (*general_notes(rows), *limits(rows), *of_logs, *obstacles)
    return ScoreTable(tuple(radii), tuple(rows), notes)


def cells(
    table: ScoreTable, *, compared: bool = True, intervals: bool = False
) -> tuple[list[str], list[list[str]]]:
    """A table's header and rows as text, with differences if compared and there are any.

    Args:
        intervals: whether those of accuracies and ACR stand behind them.
    """
    compared &= len(table.rows) > 1
    header = ["name", "σ", *map(radius_text, table.radii), "ACR"]
    if compared:
        header.append("ACR − first's")
    header += ["images", "n", "α"]
    bounds = any(row.bound not in (None, USUAL_BOUND) for row in table.rows)
    header += ["bound"] if bounds else []
    rows = []
    for row in table.rows:
        accuracies, acr = accuracy_texts(row.accuracies), acr_text(row)
        if intervals:
            ends = map(interval_text, row.accuracy_intervals)
            accuracies = [f"{a} ({end})" for a, end in zip(accuracies, ends, strict=True)]
            acr += f" ({interval_text(row.acr_interval)})"
        line = [row.name, setting(row.sigma), *accuracies, acr]
        if compared:
            line.append(_difference_text(row, table.rows[0]))
        images = images_text(row.images, row.which, row.asked)
        line += [images, thousands(row.n), setting(row.alpha)]
        rows.append([*line, setting(row.bound)] if bounds else line)
    return header, rows


def markdown(table: ScoreTable, *, intervals: bool = False) -> str:
    """A table in Markdown, its notes below."""
    return markup.markdown(*cells(table, intervals=intervals), _below(table, intervals))


def latex(table: ScoreTable, *, intervals: bool = False) -> str:
    """A table in LaTeX with booktabs' rules, its notes below."""
    return markup.latex(*cells(table, intervals=intervals), _below(table, intervals))


def _below(table: ScoreTable, intervals: bool) -> tuple[str, ...]:
    return (*table.notes, INTERVALS_NOTE) if intervals else table.notes


def csv(table: ScoreTable) -> str:
    """A table as comma-separated values in full precision; what is unknown is empty."""
    header = ["name", "sigma", *(f"certified_accuracy_{radius_text(r)}" for r in table.radii)]
    header += ["acr", "standard_error", "difference", "difference_standard_error", "common_images"]
    header += ["images", "which", "n0", "n", "alpha", "bound", "asked", "noise"]
    header += ["rescored", "level"]
    ends = [f"certified_accuracy_{radius_text(r)}" for r in table.radii] + ["acr"]
    header += [f"{name}_{end}" for name in ends for end in Interval._fields]
    rows = [
        [
            *(row.name, row.sigma, *row.accuracies, row.acr, row.standard_error),
            *(row.difference or (None, None, None)),
            *(row.images, row.which, row.n0, row.n, row.alpha, row.bound, row.asked, row.noise),
            *(row.rescored, row.level),
            *(end for interval in row.accuracy_intervals for end in interval),
            *(row.acr_interval or (None, None)),
        ]
        for row in table.rows
    ]
    return markup.csv(header, rows)


def terminal(table: ScoreTable, *, intervals: bool = False) -> "RenderableType":
    """A table for terminals: ACR and settings first, accuracies below them, then the notes."""
    from rich.console import Group
    from rich.text import Text

    from macer.reporting.grid import Grid

    header, rows = cells(table, intervals=intervals)
    last = 2 + len(table.radii)
    accuracies = [[line[0], *line[2:last]] for line in [header, *rows]]
    others = [[*line[:2], *line[last:]] for line in [header, *rows]]
    notes = [Text(f" {one_line(note)}", style="dim") for note in _below(table, intervals)]
    title = "Certified accuracy at ℓ₂ radius"
    scores = Grid(others[0], others[1:], title="Average certified radius")
    return Group(scores, Grid(accuracies[0], accuracies[1:], title=title), *notes)


def images_of_log(log: CertificateLog) -> str:
    """Which images a log has, and how many."""
    return images_text(len(log.idx), describe_images(log), asked_images(log))


def asked_images(log: CertificateLog) -> int | None:
    """How many images were asked for; certified ones count too if they were not."""
    return None if log.asked is None else len(np.union1d(log.asked, log.idx))


def acr_text(row: ScoreRow) -> str:
    """A row's ACR with its standard error; † where its bound or level was chosen afterwards."""
    mark = " †" if row.level == "chosen" else ""
    return f"{with_error(row.acr, row.standard_error)}{mark}"


def _difference_text(row: ScoreRow, first: ScoreRow) -> str:
    if row.difference is None:
        return "" if row is first else "—"
    gain, error, _ = row.difference
    return signed_with_error(gain, error)


def _compare(logs: Sequence[CertificateLog]) -> tuple[list[Difference | None], list[str]]:
    """The difference of each log to the first, and a reason for each that has none."""
    differences: list[Difference | None] = [None]
    obstacles = []
    for log in logs[1:]:
        try:
            differences.append(paired_difference(log, logs[0]))
        except Mistake as mistake:
            differences.append(None)
            obstacles.append(f"Not compared: {mistake}.")
    return differences, obstacles


def _row(log: CertificateLog, radii: Sequence[float], difference: Difference | None) -> ScoreRow:
    return ScoreRow(
        name=log.name,
        sigma=log.sigma,
        accuracies=tuple(float(a) for a in certified_accuracy(log, radii)),
        acr=average_certified_radius(log),
        standard_error=standard_error(log),
        difference=difference,
        images=len(log.idx),
        which=describe_images(log),
        n0=log.n0,
        n=log.n,
        alpha=log.alpha,
        bound=log.bound,
        asked=asked_images(log),
        noise=log.noise,
        rescored=log.rescored,
        level=log.level,
        accuracy_intervals=share_intervals(
            certified_counts(log.radius[log.correct], radii), len(log.idx)
        ),
        acr_interval=acr_interval(log),
        classes=class_scores(log, radii),
    )
