"""Radius–accuracy curves as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.errors import Mistake
from macer.report.figures import (
    INK,
    add_legend,
    add_title,
    check_picture,
    dress,
    legend_height,
    new_figure,
    paint,
    save_picture,
)
from macer.report.logs import CertificateLog
from macer.report.scores import Floats, average_certified_radius, curve
from macer.report.tables import images_of, setting, thousands
from macer.system.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Curve = tuple[Floats, Floats]


def plot(logs: Sequence[CertificateLog], path: Path) -> None:
    """Draw the logs' radius–accuracy curves into a PNG or PDF file."""
    check_picture(path)
    save_picture(draw(logs, [curve(log) for log in logs]), path)


def draw(
    logs: Sequence[CertificateLog],
    curves: Sequence[Curve],
    *,
    ink: str = INK,
    titled: bool = True,
) -> "Figure":
    """A figure of step curves, each the (x, y) of a log, with a legend below."""
    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    labels = _labels(logs)
    figure = new_figure(7.2, 4.5 + legend_height(labels))
    axes = figure.add_subplot()
    lines = draw_steps(axes, curves, ink)
    add_legend(figure, lines, labels, ink)
    if titled:
        add_title(axes, conditions(logs), ink)
    return figure


def draw_steps(axes: "Axes", curves: Sequence[Curve], ink: str = INK) -> "list[Line2D]":
    """Step curves of accuracy over radius, in the colours of their order."""
    lines = [
        axes.plot(x, y, drawstyle="steps-pre", lw=1.6, solid_joinstyle="miter")[0]
        for x, y in curves
    ]
    paint(lines)
    largest = max((float(x[-1]) for x, _ in curves), default=0.0)
    axes.set_xlim(0, 1.03 * largest if largest else 1)
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    dress(axes, "ℓ₂ radius (images in [0, 1])", "certified accuracy", ink)
    return lines


def conditions(logs: Sequence[CertificateLog]) -> str:
    """The images, n, α and noise that the logs share, as a line; what differs is said to."""
    images = {images_of(log) for log in logs}
    ordinary = {log.noise == "ordinary" for log in logs}
    n = {None if log.n is None else f"n = {log.n:,}" for log in logs}
    alpha = {None if log.alpha is None else f"α = {log.alpha:g}" for log in logs}
    parts = [
        f"images {images.pop()}" if len(images) == 1 else "images differ",
        n.pop() or "n not recorded" if len(n) == 1 else "n differs",
        alpha.pop() or "α not recorded" if len(alpha) == 1 else "α differs",
        *(
            ["ordinary noise" if len(ordinary) == 1 else "noise differs"]
            if True in ordinary
            else []
        ),
    ]
    return " · ".join(parts)


def _labels(logs: Sequence[CertificateLog]) -> list[str]:
    """Legend entries: name and ACR, and of images, n, α and noise those that differ."""
    told = [
        (
            images_of(log),
            f"n {thousands(log.n)}",
            f"α {setting(log.alpha)}",
            "ordinary noise" if log.noise == "ordinary" else "",
        )
        for log in logs
    ]
    differ = [len(set(column)) > 1 for column in zip(*told, strict=True)]
    return [
        ", ".join(
            [f"{one_line(log.name)}: ACR {average_certified_radius(log):.3f}"]
            + [text for text, differs in zip(texts, differ, strict=True) if differs and text]
        )
        for log, texts in zip(logs, told, strict=True)
    ]
