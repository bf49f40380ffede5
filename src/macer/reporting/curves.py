"""Radius–accuracy curves as a figure."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.data.value_range import IMAGE_RANGE
from macer.reporting.figures import (
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
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import average_certified_radius, curve
from macer.reporting.tables import images_of_log
from macer.reporting.texts import inputs_text, setting, thousands, with_noun
from macer.smoothing.confidence import Floats
from macer.system.errors import Mistake
from macer.system.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Curve = tuple[Floats, Floats]


def plot(
    logs: Sequence[CertificateLog],
    path: Path,
    *,
    title: str | None = None,
    labels: Sequence[str] = (),
    with_envelope: bool = False,
) -> None:
    """Draw the logs' radius–accuracy curves into a PNG, PDF or SVG file.

    Args:
        title: a line above that of the images, n and α; by default data set, σ and network.
        labels: of the curves, one for each log; by default the logs' names.
        with_envelope: draw the best of them at each radius too, see `envelope`.
    """
    check_picture(path)
    if labels and len(labels) != len(logs):
        raise Mistake(
            f"labels must be as many as the logs, {len(logs)}, got {len(labels)}: "
            f"{', '.join(labels)}"
        )
    names = labels or [log.name for log in logs]
    named = [replace(log, name=name) for log, name in zip(logs, names, strict=True)]
    curves = [curve(log) for log in logs]
    figure = draw(named, curves, envelope=envelope(curves) if with_envelope else None, title=title)
    save_picture(figure, path)


def envelope(curves: Sequence[Curve]) -> Curve:
    """The best certified accuracy of several curves at each radius, as knots of the same form.

    No model has this curve: which of them is the best was chosen at each radius after seeing them.
    """
    x = np.unique(np.concatenate([knots for knots, _ in curves]))
    at_x = [
        np.append(y[:-1], 0.0)[np.minimum(np.searchsorted(knots[:-1], x), len(knots) - 1)]
        for knots, y in curves
    ]
    return np.append(x, x[-1]), np.append(np.max(at_x, axis=0), 0.0)


def draw(
    logs: Sequence[CertificateLog],
    curves: Sequence[Curve],
    *,
    colour: str = TEXT_COLOUR,
    titled: bool = True,
    title: str | None = None,
    envelope: Curve | None = None,
) -> "Figure":
    """A figure of step curves, the (x, y) of each log, with a legend below."""
    if not logs:
        raise Mistake("logs must hold at least one log, got none: name a run or a log file")
    labels = _labels(logs)
    if envelope:
        labels.append(f"best of these {len(logs)} at each radius, chosen after seeing them")
    figure = new_figure(7.2, 4.5 + legend_height(labels))
    axes = figure.add_subplot()
    inputs = inputs_text(*(log.value_range for log in logs))
    lines = draw_steps(axes, curves, colour, inputs)
    if envelope:
        lines += axes.plot(*envelope, drawstyle="steps-pre", lw=3.5, color=colour, alpha=0.35)
    add_legend(figure, lines, labels, colour)
    if titled:
        above = one_line(subject(logs) if title is None else title)
        add_title(axes, "\n".join(filter(None, [above, conditions(logs)])), colour)
    return figure


def subject(logs: Sequence[CertificateLog]) -> str:
    """The data set, σ and network that the logs share, where they are recorded."""
    shared = [
        {log.dataset for log in logs},
        {None if log.sigma is None else f"σ = {log.sigma:g}" for log in logs},
        {log.network for log in logs},
    ]
    return " · ".join(values.pop() or "" for values in shared if len(values) == 1 and any(values))


def draw_steps(
    axes: "Axes",
    curves: Sequence[Curve],
    colour: str = TEXT_COLOUR,
    inputs: str = inputs_text(IMAGE_RANGE),
) -> "list[Line2D]":
    """Step curves of accuracy over radius, in the colours of their order.

    Args:
        inputs: what radii are distances between.
    """
    lines = [
        axes.plot(x, y, drawstyle="steps-pre", lw=1.6, solid_joinstyle="miter")[0]
        for x, y in curves
    ]
    set_line_styles(lines)
    largest = max((float(x[-1]) for x, _ in curves), default=0.0)
    axes.set_xlim(0, 1.03 * largest if largest else 1)
    axes.set_ylim(0, 1)
    axes.set_yticks(np.linspace(0, 1, 6))
    label_axes(
        axes, f"ℓ₂ radius ({inputs.replace('with values ', '')})", "certified accuracy", colour
    )
    return lines


def conditions(logs: Sequence[CertificateLog]) -> str:
    """A line of the images, n, α and noise that the logs share, and which of them differ."""
    images = {images_of_log(log) for log in logs}
    parts = [
        with_noun(images.pop()) if len(images) == 1 else "images differ",
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
    """Legend entries: name and ACR, and those of the settings that differ."""
    settings = [
        (
            log.dataset or "",
            f"σ {setting(log.sigma)}",
            log.network or "",
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
    """The mark beside the ACR of a log whose bound or level was chosen afterwards."""
    return " (level chosen afterwards)" if log.level == "chosen" else ""
