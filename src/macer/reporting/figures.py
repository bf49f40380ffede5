"""Parts of all figures: colours, axes, a legend below, and files of the same bytes each time."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macer.system.files import check_ending, check_place, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, safe for colour-blind readers, without yellow (invisible on paper).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#808080")
STYLES = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1.2, 1.2)), (0, (1.4, 1.1)))
TEXT_COLOUR = "#262626"

# Metadata with dates and versions are left out, so that the same data give the same bytes.
_LEFT_OUT = {
    ".png": ["Software"],
    ".pdf": ["CreationDate", "Creator", "Producer"],
    ".svg": ["Date", "Creator"],
}
# An SVG file has its text as text, and names of its parts that do not change from time to time.
SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "macer"}


def check_picture(path: Path) -> None:
    """Refuse a file that is neither PNG, PDF nor SVG by its ending, or that cannot be written."""
    check_ending(path, "a plot", *_LEFT_OUT)
    check_place(path)


def save_picture(figure: "Figure", path: Path) -> None:
    """Write a figure into a PNG, PDF or SVG file."""
    from matplotlib import rc_context

    check_picture(path)
    kind = path.suffix.lower()
    picture = io.BytesIO()
    with rc_context(SVG):
        figure.savefig(picture, format=kind[1:], dpi=200, metadata=dict.fromkeys(_LEFT_OUT[kind]))
    write_file(path, picture.getvalue())


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, its size in inches, outside matplotlib's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def set_line_styles(lines: "Sequence[Line2D]") -> None:
    """Give each line a colour and a dash of its own."""
    for i, line in enumerate(lines):
        line.set(color=COLOURS[i % len(COLOURS)], linestyle=STYLES[i % len(STYLES)])


def label_axes(axes: "Axes", x_label: str, y_label: str, colour: str = TEXT_COLOUR) -> None:
    """Add labels and a faint grid, and remove the frame above and at the right."""
    axes.set_xlabel(x_label, color=colour)
    axes.set_ylabel(y_label, color=colour)
    axes.tick_params(color=colour, labelcolor=colour)
    axes.grid(color=colour, alpha=0.13, lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(colour)


def add_title(axes: "Axes", text: str, colour: str = TEXT_COLOUR) -> None:
    """Add a line above the axes, at their left."""
    axes.set_title(text, fontsize=10, color=colour, loc="left", parse_math=False)


def legend_columns(labels: Sequence[str]) -> int:
    """The number of columns: two if two labels fit side by side."""
    return 2 if len(labels) > 1 and max(map(len, labels)) < 45 else 1


def legend_height(labels: Sequence[str]) -> float:
    """Inches that a legend below the axes takes."""
    return 0.22 * math.ceil(len(labels) / legend_columns(labels))


def add_legend(
    figure: "Figure", lines: "Sequence[Line2D]", labels: Sequence[str], colour: str = TEXT_COLOUR
) -> None:
    """Add a legend below all axes."""
    # Texts are set afterwards: a label given to the legend is dropped if it starts with "_".
    legend = figure.legend(
        lines, ["-"] * len(lines), loc="outside lower center", ncols=legend_columns(labels),
        frameon=False, fontsize=9, handlelength=3.2, labelcolor=colour,
    )  # fmt: skip
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set(text=label, parse_math=False)
