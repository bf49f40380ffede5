"""Certified accuracy and average certified radius: tables, paired comparisons, curves."""

import io
import math
import re
from collections.abc import Sequence
from csv import writer
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macer.files import write_atomically
from macer.logs import CertificateLog, describe_images
from macer.mistake import Mistake

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType

Floats = NDArray[np.float64]


def average_certified_radius(log: CertificateLog) -> float:
    """Average certified radius; a wrong prediction and an abstention contribute 0.

    ACR = 1/m · Σ radius · 1[predict = label]                            [Zhai+20, Sec. 5]
    """
    return float(np.mean(log.radius * log.correct))


def standard_error(log: CertificateLog) -> float:
    """Standard error of ACR as an estimate over images; NaN for a single image."""
    return _standard_error(log.radius * log.correct)


def certified_accuracy(log: CertificateLog, radii: ArrayLike) -> Floats:
    """Fraction of images classified correctly with a radius of at least r, for each r.

    accuracy(r) = 1/m · Σ 1[predict = label and radius ≥ r]
    """
    certified = np.sort(log.radius[log.correct])
    below = np.searchsorted(certified, np.asarray(radii, np.float64), side="left")
    return np.asarray((len(certified) - below) / len(log.idx), np.float64)


class Difference(NamedTuple):
    """ACR of one log minus that of another, over the images that both certify."""

    difference: float
    standard_error: float
    images: int


def paired_difference(a: CertificateLog, b: CertificateLog) -> Difference:
    """ACR(a) − ACR(b) over their common images, with the standard error of the paired mean."""
    common, in_a, in_b = np.intersect1d(a.idx, b.idx, return_indices=True)
    if not len(common):
        raise Mistake(
            f"{a.name} and {b.name} must have images in common, got {describe_images(a)} "
            f"and {describe_images(b)}: certify the same images"
        )
    disagree = common[a.label[in_a] != b.label[in_b]]
    if len(disagree):
        raise Mistake(
            f"{a.name} and {b.name} must have the same labels, got different ones for "
            f"{len(disagree):,} of {len(common):,} images, first idx {disagree[0]}: "
            "compare logs of one data set"
        )
    gain = (a.radius * a.correct)[in_a] - (b.radius * b.correct)[in_b]
    return Difference(float(np.mean(gain)), _standard_error(gain), len(common))


def usual_radii(logs: Sequence[CertificateLog]) -> tuple[float, ...]:
    """0, 0.25, 0.5 … up to the largest certified radius; wider steps above 2.5, 5 …"""
    largest = max((float(np.max(log.radius * log.correct)) for log in logs), default=0.0)
    step = 0.25
    while largest > 10 * step:
        step *= 2
    return tuple(step * i for i in range(int(largest / step) + 1))


def curve(log: CertificateLog) -> tuple[Floats, Floats]:
    """The radius–accuracy curve as knots (x, y): accuracy is y[i] on (x[i−1], x[i]].

    Its area Σ (x[i] − x[i−1]) · y[i] is ACR.
    """
    x = np.unique(np.append(log.radius[log.correct], 0.0))
    y = certified_accuracy(log, x)
    return np.append(x, x[-1]), np.append(y, 0.0)


def outcomes(log: CertificateLog) -> dict[str, int]:
    """How many images were classified correctly, wrongly, and not at all."""
    abstained = int(np.sum(log.predict == -1))
    correct = int(np.sum(log.correct))
    wrong = len(log.idx) - correct - abstained
    return {"correct": correct, "wrong": wrong, "abstained": abstained}


@dataclass(frozen=True)
class Row:
    """One log's line of a table; None: not recorded, or nothing to compare with."""

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


@dataclass(frozen=True)
class Table:
    """Certified accuracy at radii and ACR of several logs, and what to know when reading them."""

    radii: tuple[float, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def tabulate(logs: Sequence[CertificateLog], radii: Sequence[float] | None = None) -> Table:
    """The table of the logs, each compared with the first where they can be."""
    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    radii = usual_radii(logs) if radii is None else tuple(radii)
    if any(not math.isfinite(r) or r < 0 for r in radii):
        raise Mistake(f"radii must be finite and ≥ 0, got {', '.join(f'{r:g}' for r in radii)}")
    differences, obstacles = _compare(logs)
    rows = [_row(log, radii, difference) for log, difference in zip(logs, differences, strict=True)]
    return Table(tuple(radii), tuple(rows), (*_notes(rows), *obstacles))


def cells(table: Table, *, compared: bool = True) -> tuple[list[str], list[list[str]]]:
    """A table's header and rows as text, with the differences if compared and there are any."""
    compared &= len(table.rows) > 1
    header = ["name", "σ", *(_radius_text(r) for r in table.radii), "ACR"]
    header += ["ACR − first's"] * compared + ["images", "n", "α"]
    rows = []
    for row in table.rows:
        accuracies = [f"{a:.3f}" if a else "0" for a in row.accuracies]
        difference = [_difference_text(row, table.rows[0])] * compared
        settings = [images_text(row.images, row.which), thousands(row.n), setting(row.alpha)]
        acr = with_error(row.acr, row.standard_error)
        rows.append([row.name, setting(row.sigma), *accuracies, acr, *difference, *settings])
    return header, rows


def markdown(table: Table) -> str:
    """A table in Markdown, its notes below."""
    header, rows = cells(table)
    rule = [":--"] + ["--:"] * (len(header) - 1)
    lines = [header, rule, *([_markdown_text(cell) for cell in row] for row in rows)]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + "".join(f"\n{_markdown_text(note)}\n" for note in table.notes)


def latex(table: Table) -> str:
    """A table in LaTeX with booktabs' rules, its notes below."""
    header, rows = cells(table)
    lines = [" & ".join(latex_text(cell) for cell in row) + r" \\" for row in [header, *rows]]
    parts = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {latex_text(note)}\par}}" for note in table.notes),
    ]
    return "\n".join(parts) + "\n"


def csv(table: Table) -> str:
    """A table as comma-separated values in full precision; what is unknown is empty."""
    text = io.StringIO()
    lines = writer(text, lineterminator="\n")
    header = ["name", "sigma", *(f"certified_accuracy_{_radius_text(r)}" for r in table.radii)]
    header += ["acr", "standard_error", "difference", "difference_standard_error", "common_images"]
    header += ["images", "which", "n0", "n", "alpha", "bound"]
    lines.writerow(header)
    for row in table.rows:
        values = [row.name, row.sigma, *row.accuracies, row.acr, row.standard_error]
        values += [*(row.difference or (None, None, None)), row.images, row.which]
        values += [row.n0, row.n, row.alpha, row.bound]
        lines.writerow("" if _unknown(value) else value for value in values)
    return text.getvalue()


def terminal(table: Table) -> "RenderableType":
    """A table for terminals: ACR and settings first, accuracies below them, then the notes."""
    from rich.console import Group
    from rich.text import Text

    header, rows = cells(table)
    last = 2 + len(table.radii)
    accuracies = [[line[0], *line[2:last]] for line in [header, *rows]]
    others = [[*line[:2], *line[last:]] for line in [header, *rows]]
    notes = [Text(f" {note}", style="dim") for note in table.notes]
    title = "Certified accuracy at ℓ₂ radius"
    return Group(_grid(others, "Average certified radius"), _grid(accuracies, title), *notes)


def plot(logs: Sequence[CertificateLog], path: Path) -> None:
    """Draw the logs' radius–accuracy curves into a PNG or PDF file."""
    kind = path.suffix.lower()
    if kind not in (".png", ".pdf"):
        raise Mistake(f"path of a plot must end in .png or .pdf, got {str(path)!r}")
    # Neither date nor version: the same logs give the same bytes.
    absent = {".png": ["Software"], ".pdf": ["CreationDate", "Creator", "Producer"]}[kind]
    picture = io.BytesIO()
    figure = draw(logs, [curve(log) for log in logs])
    figure.savefig(picture, format=kind[1:], dpi=200, metadata=dict.fromkeys(absent))
    write_file(path, picture.getvalue())


# Okabe and Ito's colours, safe for colour-blind readers, without yellow (invisible on paper).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#808080")
STYLES = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1.2, 1.2)), (0, (1.4, 1.1)))
INK = "#262626"


def draw(
    logs: Sequence[CertificateLog],
    curves: Sequence[tuple[Floats, Floats]],
    *,
    ink: str = INK,
    titled: bool = True,
) -> "Figure":
    """A figure of step curves, each the (x, y) of a log, with a legend below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    labels = _labels(logs)
    legend_columns = 2 if len(logs) > 1 and max(map(len, labels)) < 45 else 1
    legend_rows = math.ceil(len(logs) / legend_columns)
    figure = Figure(figsize=(7.2, 4.5 + 0.22 * legend_rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    lines = [
        axes.plot(x, y, drawstyle="steps-pre", lw=1.6, solid_joinstyle="miter")[0]
        for x, y in curves
    ]
    for i, line in enumerate(lines):
        line.set(color=COLOURS[i % len(COLOURS)], linestyle=STYLES[i % len(STYLES)])
    _dress(axes, max(float(x[-1]) for x, _ in curves), ink)
    # Texts are set afterwards: a label given to the legend is dropped if it starts with "_".
    legend = figure.legend(
        lines, ["-"] * len(lines), loc="outside lower center", ncols=legend_columns,
        frameon=False, fontsize=9, handlelength=3.2, labelcolor=ink,
    )  # fmt: skip
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set(text=label, parse_math=False)
    if titled:
        axes.set_title(conditions(logs), fontsize=10, color=ink, loc="left", parse_math=False)
    return figure


def conditions(logs: Sequence[CertificateLog]) -> str:
    """The images, n and α that the logs share, as a line; what differs is said to differ."""
    images = {_images(log) for log in logs}
    n = {None if log.n is None else f"n = {log.n:,}" for log in logs}
    alpha = {None if log.alpha is None else f"α = {log.alpha:g}" for log in logs}
    parts = [
        f"images {images.pop()}" if len(images) == 1 else "images differ",
        n.pop() or "n not recorded" if len(n) == 1 else "n differs",
        alpha.pop() or "α not recorded" if len(alpha) == 1 else "α differs",
    ]
    return " · ".join(parts)


def images_text(count: int, which: str) -> str:
    """Which images, and how many."""
    return which if which.startswith(f"{count:,} images") else f"{which} ({count:,})"


def setting(value: float | str | None) -> str:
    """A setting as text; ? where the log does not say."""
    if value is None:
        return "?"
    return value if isinstance(value, str) else f"{value:g}"


def thousands(value: int | None) -> str:
    """A whole number in groups of three digits; ? where the log does not say."""
    return "?" if value is None else f"{value:,}"


def with_error(value: float, error: float) -> str:
    """A value with its standard error, three decimals each."""
    text = f"{value:.3f}".replace("-", "−")
    return f"{text} ± {'?' if math.isnan(error) else f'{error:.3f}'}"


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, where the user asked for it."""
    if not path.parent.is_dir():
        raise Mistake(f"no folder {path.parent} to write {path.name} into: make it first")
    if path.is_dir():
        raise Mistake(f"path must be a file to write, got the folder {path}")
    write_atomically(path, content)


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped and the symbols of this field in maths."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "…": r"\,\ldots\,",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    "ℓ": r"$\ell$",
    "₂": r"$_2$",
}


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*|<\[])", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text)


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _images(log: CertificateLog) -> str:
    return images_text(len(log.idx), describe_images(log))


def _radius_text(r: float) -> str:
    return f"{r:.2f}" if round(r, 2) == r else f"{r:g}"


def _standard_error(values: Floats) -> float:
    # s/√m, where s² = Σ (v − v̄)² / (m − 1)
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _compare(logs: Sequence[CertificateLog]) -> tuple[list[Difference | None], list[str]]:
    """Each log's difference to the first, and why there is none where there is none."""
    differences: list[Difference | None] = [None]
    obstacles = []
    for log in logs[1:]:
        try:
            differences.append(paired_difference(log, logs[0]))
        except Mistake as mistake:
            differences.append(None)
            obstacles.append(f"Not compared: {mistake}.")
    return differences, obstacles


def _row(log: CertificateLog, radii: Sequence[float], difference: Difference | None) -> Row:
    return Row(
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
    )


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [f"{_errors_note(rows)} ± is one standard error over the images."]
    if any(row.difference for row in rows):
        counts = {row.difference.images for row in rows if row.difference}
        images = f"{counts.pop():,}" if len(counts) == 1 else "different numbers of"
        notes.append(f"Differences of ACR are paired, over {images} images common with the first.")
    differing = [
        symbol
        for symbol, values in (
            ("images", {row.which for row in rows}),
            ("n", {row.n for row in rows}),
            ("α", {row.alpha for row in rows}),
        )
        if len(values) > 1
    ]
    if differing:
        notes.append(
            f"The rows differ in {' and '.join(differing)}, on which ACR depends: "
            "do not compare their ACRs directly."
        )
    return notes


def _errors_note(rows: Sequence[Row]) -> str:
    cases = dict.fromkeys((row.alpha, row.images) for row in rows)
    expected = "; ".join(
        f"{alpha:g} · {images:,} = {alpha * images:g}"
        for alpha, images in cases
        if alpha is not None
    )
    unknown = "α is not recorded in every log" if expected else "α is not recorded here"
    if all(alpha is not None for alpha, _ in cases):
        unknown = ""
    figures = "; ".join(filter(None, [expected, unknown]))
    return f"α is per image: over m images at most αm false certificates are expected ({figures})."


def _difference_text(row: Row, first: Row) -> str:
    if row.difference is None:
        return "" if row is first else "—"
    gain, error, _ = row.difference
    return with_error(gain, error) if gain < 0 else f"+{with_error(gain, error)}"


def _grid(lines: Sequence[Sequence[str]], title: str) -> "RenderableType":
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(lines[0]):
        grid.add_column(Text(name), justify="right" if i else "left", overflow="fold")
    for line in lines[1:]:
        grid.add_row(*(Text(cell) for cell in line))
    return grid


def _labels(logs: Sequence[CertificateLog]) -> list[str]:
    """Legend entries: name and ACR, and of images, n and α those that differ."""
    told = [(_images(log), f"n {thousands(log.n)}", f"α {setting(log.alpha)}") for log in logs]
    differ = [len(set(column)) > 1 for column in zip(*told, strict=True)]
    return [
        ", ".join(
            [f"{_one_line(log.name)}: ACR {average_certified_radius(log):.3f}"]
            + [text for text, differs in zip(texts, differ, strict=True) if differs]
        )
        for log, texts in zip(logs, told, strict=True)
    ]


def _dress(axes: "Axes", largest: float, ink: str) -> None:
    axes.set_xlim(0, 1.03 * largest if largest else 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("ℓ₂ radius (images in [0, 1])", color=ink)
    axes.set_ylabel("certified accuracy", color=ink)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.tick_params(color=ink, labelcolor=ink)
    axes.grid(color=ink, alpha=0.13, lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(ink)
