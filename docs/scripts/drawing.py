"""What the pictures of README and docs are drawn with: colours, sizes, pixels, texts and arrows."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from torch import Tensor

from macer.reporting.figures import COLOURS, TEXT_COLOUR, new_figure

BLUE, RED, GREEN = COLOURS[:3]
FAINT = "#6a6a6a"
SIZE = (5.7, 4.3)  # inches; two of them stand side by side on a page


def titled(title: str, height: float = SIZE[1]) -> Figure:
    """A figure with a line at its top."""
    figure = new_figure(SIZE[0], height)
    figure.set_layout_engine("none")
    figure.text(0.03, 1 - 0.26 / height, title, fontsize=11.5, color=TEXT_COLOUR, weight="bold")
    return figure


def pixels(figure: Figure, place: tuple[float, float, float, float], values: Tensor) -> None:
    """An image in a place: left, bottom, width and height as shares of the figure."""
    axes = figure.add_axes(place)
    axes.imshow(values.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])


def text(
    figure: Figure, x: float, y: float, said: str, size: float = 10, colour: str = TEXT_COLOUR
) -> None:
    """A line of text around a point."""
    figure.text(x, y, said, fontsize=size, color=colour, ha="center", parse_math=False)


def arrow(figure: Figure, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from one point to another."""
    drawn = FancyArrowPatch(
        start, end, transform=figure.transFigure, arrowstyle="-|>", mutation_scale=11, color=FAINT
    )
    figure.add_artist(drawn)


def down(value: float, digits: int = 3) -> str:
    """A bound or a radius, rounded down."""
    return f"{np.floor(value * 10**digits) / 10**digits:.{digits}f}"
