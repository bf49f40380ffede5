"""Radius–accuracy curves as a picture."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.files import write_file
from macer.logs import CertificateLog, describe_images
from macer.mistake import Mistake
from macer.scores import Floats, average_certified_radius, curve
from macer.tables import images_text, one_line, setting, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


def _images(log: CertificateLog) -> str:
    return images_text(len(log.idx), describe_images(log))


def _labels(logs: Sequence[CertificateLog]) -> list[str]:
    """Legend entries: name and ACR, and of images, n and α those that differ."""
    told = [(_images(log), f"n {thousands(log.n)}", f"α {setting(log.alpha)}") for log in logs]
    differ = [len(set(column)) > 1 for column in zip(*told, strict=True)]
    return [
        ", ".join(
            [f"{one_line(log.name)}: ACR {average_certified_radius(log):.3f}"]
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
