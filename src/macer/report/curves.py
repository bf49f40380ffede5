"""Radius–accuracy curves as a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.errors import Mistake
from macer.report.figures import (
    TEXT_COLOUR,
    add_legend,
    add_title,
    check_picture,
    label_axes,
    legend_height,
    new_figure,
    save_picture,
    set_line_styles,
)
from macer.report.logs import CertificateLog
from macer.report.scores import Floats, average_certified_radius, curve
from macer.report.tables import images_of_log, setting, thousands
from macer.system.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Curve = tuple[Floats, Floats]


def plot(logs: Sequence[CertificateLog], path: Path) -> None:
    """Draw the logs' radius–accuracy curves into a PNG, PDF or SVG file."""
    check_picture(path)
    save_picture(draw(logs, [curve(log) for log in logs]), path)


def draw(
    logs: Sequence[CertificateLog],
    curves: Sequence[Curve],
    *,
    colour: str = TEXT_COLOUR,
    titled: bool = True,
) -> "Figure":
    """A figure of step curves, the (x, y) of each log, with a legend below."""
    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    labels = _labels(logs)
    figure = new_figure(7.2, 4.5 + legend_height(labels))
    axes = figure.add_subplot()
    lines = draw_steps(axes, curves, colour)
    add_legend(figure, lines, labels, colour)
    if titled:
        add_title(axes, "\n".join(filter(None, [subject(logs), conditions(logs)])), colour)
    return figure


def draw_steps(axes: "Axes", curves: Sequence[Curve], colour: str = TEXT_COLOUR) -> "list[Line2D]":
    """Step curves of accuracy over radius, in the colours of their order."""
    lines = [
        axes.plot(x, y, drawstyle="steps-pre", lw=1.6, solid_joinstyle="miter")[0]
        for x, y in curves
    ]
    set_line_styles(lines)
    largest = max((float(x[-1]) for x, _ in curves), default=0.0)
    axes.set_xlim(0, 1.03 * largest if largest else 1)
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    label_axes(axes, "ℓ₂ radius (images in [0, 1])", "certified accuracy", colour)
    return lines


def subject(logs: Sequence[CertificateLog]) -> str:
    """A line of the data set, the network and σ that the logs share; empty if none is known."""
    subjects = {log.subject for log in logs}
    datasets, networks = ({one[i] for one in subjects if one} for i in (0, 1))
    sigmas = {log.sigma for log in logs}
    known = [next(iter(names)) for names in (datasets, networks) if len(names) == 1]
    parts = [] if None in subjects else [one_line(name) for name in known]
    if len(sigmas) == 1 and None not in sigmas:
        parts.append(f"σ = {setting(sigmas.pop())}")
    return " · ".join(parts)


def conditions(logs: Sequence[CertificateLog]) -> str:
    """A line of the images, n, α and noise that the logs share, and which of them differ."""
    images = {images_of_log(log) for log in logs}
    parts = [
        f"images {images.pop()}" if len(images) == 1 else "images differ",
        _shared("n", [log.n for log in logs], ","),
        _shared("α", [log.alpha for log in logs], "g"),
    ]
    ordinary = [log.noise == "ordinary" for log in logs]
    if any(ordinary):
        parts.append("ordinary noise" if all(ordinary) else "noise differs")
    return " · ".join(parts)


def _shared(name: str, values: Sequence[float | None], form: str) -> str:
    """The value that all logs have, or that it differs."""
    if len(set(values)) > 1:
        return f"{name} differs"
    return f"{name} not recorded" if values[0] is None else f"{name} = {values[0]:{form}}"


def _labels(logs: Sequence[CertificateLog]) -> list[str]:
    """Legend entries: name and ACR, and those of images, n, α, noise and bound that differ."""
    settings = [
        (
            images_of_log(log),
            f"n {thousands(log.n)}",
            f"α {setting(log.alpha)}",
            "ordinary noise" if log.noise == "ordinary" else "",
            log.bound or "",
        )
        for log in logs
    ]
    differ = [len(set(column)) > 1 for column in zip(*settings, strict=True)]
    return [
        ", ".join(
            [f"{one_line(log.name)}: ACR {average_certified_radius(log):.3f}{_mark(log)}"]
            + [text for text, differs in zip(texts, differ, strict=True) if differs and text]
        )
        for log, texts in zip(logs, settings, strict=True)
    ]


def _mark(log: CertificateLog) -> str:
    """What stands beside the ACR of a log whose bound or level was chosen afterwards."""
    return " (level chosen afterwards)" if log.level == "chosen" else ""
