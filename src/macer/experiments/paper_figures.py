"""The paper's figures: our radius–accuracy curves, and the published accuracies as points."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from macer.experiments.paper import Item, Row
from macer.experiments.paper_logs import ShownLog
from macer.experiments.paper_runs import Reproduction
from macer.reporting.curves import conditions, draw_steps
from macer.reporting.figures import (
    COLOURS,
    STYLES,
    TEXT_COLOUR,
    add_title,
    new_figure,
    save_picture,
)
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import average_certified_radius, curve
from macer.runs.names import soft_beta
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_IN_LINE = {"sigma": 3, "table": 2, "name": 3}
MARKERS = "osD^vPX*"


def plot(item: Item, entries: Sequence[Reproduction], path: Path) -> None:
    """Draw a figure into a PNG, PDF or SVG file, a panel for each group of rows."""
    assert item.panels
    panels = _soft_panels(item, entries) if item.soft_betas else _panels(item, entries)
    columns = min(PANELS_IN_LINE[item.panels], len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(4.2 * columns, 3.4 * lines + 0.3)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for (title, draw), axes in zip(panels, grid.flat, strict=False):
        draw(axes)
        add_title(axes, title)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 1:].flat:
        axes.set_ylabel("")
    figure.supxlabel(_caption(item, entries), fontsize=9, color=TEXT_COLOUR, parse_math=False)
    save_picture(figure, path)


Panel = tuple[str, "Callable[[Axes], None]"]  # its title, and what draws it


def _soft_panels(item: Item, entries: Sequence[Reproduction]) -> list[Panel]:
    """A panel for each model that has soft certificates; the user's own come first."""
    own = [(entry.row.name, entry.log, entry.soft) for entry in entries if entry.soft]
    shipped = [
        (one.about, one.log, one.soft) for each in entries for one in each.shipped if one.soft
    ]
    panels: list[Panel] = [
        (title, partial(_draw_soft, log=log, soft=soft))
        for title, log, soft in own or shipped
        if log is not None
    ]
    if not panels:
        raise Mistake(
            f"{item.name} must have soft certificates to draw, got none; add --train, or certify "
            f"runs with --soft-betas {' '.join(f'{b:g}' for b in item.soft_betas)}"
        )
    return panels


def _panels(item: Item, entries: Sequence[Reproduction]) -> list[Panel]:
    """The title and the rows of each panel, in the item's order."""
    groups = groupby(entries, lambda entry: _group(item, entry.row))
    return [(title, partial(_draw_scores, rows=list(rows), item=item)) for title, rows in groups]


def _group(item: Item, row: Row) -> str:
    if item.panels == "sigma":
        return f"σ = {row.train_recipe().sigma:g}"
    return row.table if item.panels == "table" else row.name


def _draw_scores(axes: "Axes", *, rows: Sequence[Reproduction], item: Item) -> None:
    """Draw published accuracies as points, and certificates as steps of the same colour."""
    steps = [(i, place, one) for i, row in enumerate(rows) for place, one in enumerate(row.shown())]
    drawn = draw_steps(axes, [curve(one.log) for *_, one in steps])
    for line, (i, place, _) in zip(drawn, steps, strict=True):
        line.set(color=COLOURS[i % len(COLOURS)], linestyle=STYLES[place % len(STYLES)])
    points = [_points(entry.row, item) for entry in rows]
    lines = [axes.plot(x, y, ms=4, lw=0.5, clip_on=False)[0] for x, y in points]
    for i, line in enumerate(lines):
        line.set(color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)])
    right = axes.get_xlim()[1] if steps else 0.0
    axes.set_xlim(0, max(right, *(x[-1] + 0.05 for x, _ in points)))
    labels = [f"{entry.row.name}: ACR {entry.row.acr:.3f}" for entry in rows]
    labels += [_label(rows[i], one) for i, _, one in steps]
    axes.legend([*lines, *drawn], labels, fontsize=7, frameon=False)


def _points(row: Row, item: Item) -> tuple[list[float], list[float]]:
    """Radii, and the accuracies that the paper has there, except 0."""
    known = [(r, a) for r, a in zip(item.radii, row.accuracies, strict=True) if a]
    return [r for r, _ in known], [a for _, a in known]


def _label(entry: Reproduction, one: ShownLog) -> str:
    acr = average_certified_radius(one.log)
    return f"{entry.row.name} {one.of}: {acr:.3f} ({len(one.log.idx):,} images)"


def _draw_soft(axes: "Axes", *, log: CertificateLog, soft: Sequence[CertificateLog]) -> None:
    """Draw the hard certificates of a model, and its soft ones at each β."""
    names = ["hard", *(f"soft, β = {soft_beta(each.name)}" for each in soft)]
    labels = [
        f"{name}: ACR {average_certified_radius(each):.3f}"
        for name, each in zip(names, [log, *soft], strict=True)
    ]
    lines = draw_steps(axes, [curve(each) for each in (log, *soft)])
    axes.legend(lines, labels, fontsize=7, frameon=False)


def _caption(item: Item, entries: Sequence[Reproduction]) -> str:
    if item.soft_betas:
        own = [entry.log for entry in entries if entry.soft and entry.log]
        return conditions(own or [one.log for e in entries for one in e.shipped if one.soft])
    logs = [one.log for entry in entries for one in entry.shown()]
    if not logs:
        return "points: the paper"
    others = any(entry.shipped for entry in entries)
    whose = "certificates that come with macer" if others else "here"
    return f"points: the paper · steps: {whose}, {conditions(logs)}"
