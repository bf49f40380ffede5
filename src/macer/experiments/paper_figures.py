"""The paper's figures: our radius–accuracy curves, and the published accuracies as points."""

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.errors import Mistake
from macer.experiments.paper import Item, Row
from macer.experiments.paper_runs import Reproduction
from macer.reporting.curves import conditions, draw_steps
from macer.reporting.figures import COLOURS, TEXT_COLOUR, add_title, new_figure, save_picture
from macer.reporting.scores import average_certified_radius, curve
from macer.runs.names import soft_beta

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = {"sigma": 3, "table": 2, "name": 3}
MARKERS = "osD^vPX*"


def plot(item: Item, entries: Sequence[Reproduction], path: Path) -> None:
    """Draw a figure into a PNG, PDF or SVG file, a panel for each group of rows."""
    assert item.panels
    if item.soft_betas:
        entries = _with_soft(item, entries)
    panels = _panels(item, entries)
    columns = min(COLUMNS[item.panels], len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(4.2 * columns, 3.4 * lines + 0.3)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for (title, rows), axes in zip(panels, grid.flat, strict=False):
        (_draw_soft if item.soft_betas else _draw_scores)(axes, rows, item)
        add_title(axes, title)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 1:].flat:
        axes.set_ylabel("")
    figure.supxlabel(_caption(item, entries), fontsize=9, color=TEXT_COLOUR, parse_math=False)
    save_picture(figure, path)


Panel = tuple[str, list[Reproduction]]


def _with_soft(item: Item, entries: Sequence[Reproduction]) -> list[Reproduction]:
    certified = [entry for entry in entries if entry.soft]
    if not certified:
        raise Mistake(
            f"{item.name} must have soft certificates to draw, got none; add --train, or certify "
            f"runs with --soft-betas {' '.join(f'{b:g}' for b in item.soft_betas)}"
        )
    return certified


def _panels(item: Item, entries: Sequence[Reproduction]) -> list[Panel]:
    """The title and the rows of each panel, in the item's order."""
    groups = groupby(entries, lambda entry: _group(item, entry.row))
    return [(title, list(rows)) for title, rows in groups]


def _group(item: Item, row: Row) -> str:
    if item.panels == "sigma":
        return f"σ = {row.train_recipe().sigma:g}"
    return row.table if item.panels == "table" else row.name


def _draw_scores(axes: "Axes", rows: Sequence[Reproduction], item: Item) -> None:
    """Draw our curves as steps, published accuracies as points of the same colour."""
    no_curve = (np.zeros(1), np.zeros(1))
    draw_steps(axes, [curve(entry.log) if entry.log else no_curve for entry in rows])
    points = [_points(entry.row, item) for entry in rows]
    lines = [axes.plot(x, y, ms=4, lw=0.5, clip_on=False)[0] for x, y in points]
    for i, line in enumerate(lines):
        line.set(color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)])
    axes.set_xlim(0, max(axes.get_xlim()[1], *(x[-1] + 0.05 for x, _ in points)))
    axes.legend(lines, [_label(entry) for entry in rows], fontsize=7, frameon=False)


def _points(row: Row, item: Item) -> tuple[list[float], list[float]]:
    """Radii, and the accuracies that the paper has there, except 0."""
    known = [(r, a) for r, a in zip(item.radii, row.accuracies, strict=True) if a]
    return [r for r, _ in known], [a for _, a in known]


def _label(entry: Reproduction) -> str:
    ours = f", here {average_certified_radius(entry.log):.3f}" if entry.log else ""
    return f"{entry.row.name}: ACR {entry.row.acr:.3f}{ours}"


def _draw_soft(axes: "Axes", rows: Sequence[Reproduction], item: Item) -> None:
    """Draw the hard certificates of a model, and its soft ones at each β."""
    (one,) = rows
    assert one.log
    logs = [one.log, *one.soft]
    names = ["hard", *(f"soft, β = {soft_beta(log.name)}" for log in one.soft)]
    labels = [
        f"{name}: ACR {average_certified_radius(log):.3f}"
        for name, log in zip(names, logs, strict=True)
    ]
    lines = draw_steps(axes, [curve(log) for log in logs])
    axes.legend(lines, labels, fontsize=7, frameon=False)


def _caption(item: Item, entries: Sequence[Reproduction]) -> str:
    logs = [entry.log for entry in entries if entry.log]
    parts = [] if item.soft_betas else ["points: the paper"]
    if logs:
        parts.append(f"steps: here, {conditions(logs)}")
    return " · ".join(parts)
