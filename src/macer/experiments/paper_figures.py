"""The paper's figures: our radius–accuracy curves, and what the paper published as points."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macer.errors import Mistake
from macer.experiments.paper import Item, Row
from macer.experiments.paper_runs import Reproduction
from macer.report.curves import conditions, draw_steps
from macer.report.figures import COLOURS, TEXT_COLOUR, add_title, new_figure, save_picture
from macer.report.scores import average_certified_radius, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = {"sigma": 3, "table": 2, "name": 3}
MARKERS = "osD^vPX*"


def plot(item: Item, found: Sequence[Reproduction], path: Path) -> None:
    """Draw a figure into a PNG or PDF file, a panel for each group of rows."""
    assert item.panels
    if item.soft_betas:
        found = _with_soft(item, found)
    panels = _panels(item, found)
    columns = min(COLUMNS[item.panels], len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(4.2 * columns, 3.4 * lines + 0.3)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for (title, rows), axes in zip(panels, grid.flat, strict=False):
        (_draw_soft if item.soft_betas else _draw_scores)(axes, rows, item)
        add_title(axes, title)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 1:].flat:
        axes.set_ylabel("")
    figure.supxlabel(_caption(item, found), fontsize=9, color=TEXT_COLOUR, parse_math=False)
    save_picture(figure, path)


Panel = tuple[str, list[Reproduction]]


def _with_soft(item: Item, found: Sequence[Reproduction]) -> list[Reproduction]:
    some = [one for one in found if one.soft]
    if not some:
        raise Mistake(
            f"{item.name} must have soft certificates to draw, got none; add --train, or certify "
            f"runs with --soft-betas {' '.join(f'{b:g}' for b in item.soft_betas)}"
        )
    return some


def _panels(item: Item, found: Sequence[Reproduction]) -> list[Panel]:
    """Titles and the rows that belong together, in the item's order."""
    groups = groupby(found, lambda one: _group(item, one.row))
    return [(title, list(rows)) for title, rows in groups]


def _group(item: Item, row: Row) -> str:
    if item.panels == "sigma":
        return f"σ = {row.train_recipe().sigma:g}"
    return row.table if item.panels == "table" else row.name


def _draw_scores(axes: "Axes", rows: Sequence[Reproduction], item: Item) -> None:
    """Ours as steps, published accuracies as points of the same colour."""
    nothing = (np.zeros(1), np.zeros(1))
    draw_steps(axes, [curve(one.log) if one.log else nothing for one in rows])
    points = [_points(one.row, item) for one in rows]
    lines = [axes.plot(x, y, ms=4, lw=0.5, clip_on=False)[0] for x, y in points]
    for i, line in enumerate(lines):
        line.set(color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)])
    axes.set_xlim(0, max(axes.get_xlim()[1], *(x[-1] + 0.05 for x, _ in points)))
    axes.legend(lines, [_label(one) for one in rows], fontsize=7, frameon=False)


def _points(row: Row, item: Item) -> tuple[list[float], list[float]]:
    """Radii, and the accuracies that the paper has there; 0 is left out."""
    known = [(r, a) for r, a in zip(item.radii, row.accuracies, strict=True) if a]
    return [r for r, _ in known], [a for _, a in known]


def _label(one: Reproduction) -> str:
    ours = f", here {average_certified_radius(one.log):.3f}" if one.log else ""
    return f"{one.row.name}: ACR {one.row.acr:.3f}{ours}"


def _draw_soft(axes: "Axes", rows: Sequence[Reproduction], item: Item) -> None:
    """Hard certificates of a model, and soft ones at each β."""
    (one,) = rows
    assert one.log
    logs = [one.log, *one.soft]
    names = ["hard", *(log.name.replace("bernstein-", "soft, β = ") for log in one.soft)]
    labels = [
        f"{name}: ACR {average_certified_radius(log):.3f}"
        for name, log in zip(names, logs, strict=True)
    ]
    lines = draw_steps(axes, [curve(log) for log in logs])
    axes.legend(lines, labels, fontsize=7, frameon=False)


def _caption(item: Item, found: Sequence[Reproduction]) -> str:
    logs = [one.log for one in found if one.log]
    parts = [] if item.soft_betas else ["points: the paper"]
    return " · ".join([*parts, *([f"steps: here, {conditions(logs)}"] if logs else [])])
