"""Held-out accuracy and radius during training, over epochs and over seconds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from macer.reporting import markup
from macer.reporting.figures import (
    add_legend,
    add_title,
    label_axes,
    legend_height,
    new_figure,
    save_picture,
    set_line_styles,
)
from macer.reporting.texts import setting
from macer.runs.run import Metrics, Run
from macer.system.errors import Mistake
from macer.system.text import one_line
from macer.training.speed import epoch_seconds
from macer.training.validation import largest_estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Looks of each run in a table for people; CSV has all looks.
MOST_LOOKS = 12


class Look(NamedTuple):
    """The scores of the held-out images at the end of an epoch."""

    epoch: int
    seconds: float  # of training until then, without the looks
    accuracy: float
    radius: float


@dataclass(frozen=True)
class History:
    """The looks of one training, and the images and votes that they are from."""

    name: str
    sigma: float
    images: int
    votes: int | None  # for each image; None where the metrics do not say
    looks: tuple[Look, ...]


def has_looked(folder: Path) -> bool:
    """Whether a run has looked at held-out images."""
    return any("validation_radius" in line for line in Run(folder).read_metrics())


def without_looks(folder: Path) -> str:
    """What to know of a run that is left out."""
    return f"{folder}: left out, since it has looked at no held-out images; train with --held-out N"


def read_history(folder: Path) -> History:
    """The history of a run, finished or not."""
    run = Run(folder)
    recipe, metrics = run.read_recipe(), run.read_metrics()
    looks = [line for line in metrics if "validation_radius" in line]
    if not looks:
        raise Mistake(
            f"{folder} must have looked at held-out images, got none in {run.metrics}; train with "
            "--held-out N"
        )
    seconds = _seconds_until(metrics, epoch_seconds(metrics, recipe))
    votes = {line.get("validation_samples") for line in looks}
    if None in votes:  # recorded before metrics had this entry
        votes = {None}
    if len(votes) > 1:
        raise Mistake(
            f"{run.metrics} must have one number of votes, got {' and '.join(map(str, votes))}; "
            "a run that is resumed needs the same --validate-samples"
        )
    return History(
        name=folder.resolve().name,
        sigma=recipe.sigma,
        images=recipe.held_out,
        votes=votes.pop(),
        looks=tuple(
            Look(
                line["epoch"],
                seconds[line["epoch"] - 1],
                line["validation_accuracy"],
                line["validation_radius"],
            )
            for line in looks
        ),
    )


def _seconds_until(metrics: Sequence[Metrics], recorded: Sequence[float]) -> list[float]:
    """Seconds until the end of each epoch; an epoch without a record counts as the mean."""
    known = {line["epoch"]: seconds for line, seconds in zip(metrics, recorded, strict=True)}
    mean = statistics.fmean(recorded)
    return list(accumulate(known.get(epoch, mean) for epoch in range(1, max(known) + 1)))


HEADER = ("run", "σ", "epoch", "seconds", "held-out accuracy", "held-out radius")


def rows(histories: Sequence[History]) -> list[list[str]]:
    """The cells of HEADER for at most MOST_LOOKS looks of each run."""
    return [
        [
            history.name,
            setting(history.sigma),
            f"{look.epoch}",
            f"{look.seconds:,.1f}",
            f"{look.accuracy:.3f}",
            f"{look.radius:.3f}",
        ]
        for history in histories
        for look in _selected(history.looks)
    ]


def _selected(looks: Sequence[Look]) -> list[Look]:
    """At most MOST_LOOKS looks at even distances, the last one among them."""
    step = math.ceil(len(looks) / MOST_LOOKS)
    return list(looks[(len(looks) - 1) % step :: step])


def csv(histories: Sequence[History]) -> str:
    """Every look, in full precision."""
    header = ("run", "sigma", "images", "votes", *Look._fields)
    return markup.csv(
        header,
        [
            (history.name, history.sigma, history.images, history.votes, *look)
            for history in histories
            for look in history.looks
        ],
    )


def notes(histories: Sequence[History]) -> list[str]:
    """What to know when reading a history."""
    return [
        "seconds of training alone; accuracy and radius of held-out training images, estimated "
        "from a few votes: no certificates.",
        *(f"{history.name}: {_images_and_votes(history)}" for history in histories),
    ]


def _images_and_votes(history: History) -> str:
    if history.votes is None:
        return f"{history.images:,} images, votes not recorded"
    largest = largest_estimate(history.sigma, history.votes)
    return (
        f"{history.images:,} images, {history.votes} votes each, so no radius above {largest:.3f}"
    )


def plot(histories: Sequence[History], path: Path) -> None:
    """Draw held-out radii over epochs and over seconds into a PNG, PDF or SVG file."""
    save_picture(draw(histories), path)


def draw(histories: Sequence[History]) -> "Figure":
    """A figure of held-out radii over epochs and over seconds."""
    labels = [
        f"{one_line(history.name)}: {history.looks[-1].radius:.3f} after "
        f"{history.looks[-1].seconds:,.0f} s"
        for history in histories
    ]
    figure = new_figure(9.0, 4.0 + legend_height(labels))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, field, x_label in (
        (left, "epoch", "epochs of training"),
        (right, "seconds", "seconds of training"),
    ):
        lines = [
            axes.plot(
                [getattr(look, field) for look in history.looks],
                [look.radius for look in history.looks],
                lw=1.6, marker="o", ms=3,
            )[0]
            for history in histories
        ]  # fmt: skip
        set_line_styles(lines)
        label_axes(axes, x_label, "held-out radius" if axes is left else "")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    add_title(left, _title(histories))
    add_legend(figure, lines, labels)
    return figure


def _title(histories: Sequence[History]) -> str:
    """A line of the images and votes that the looks share."""
    first = histories[0]
    images, votes = f"{first.images:,} held-out images", f"{first.votes or '?'} votes each"
    if any(history.images != first.images for history in histories):
        images = "held-out images differ"
    if any(history.votes != first.votes for history in histories):
        votes = "votes differ"
    return f"{images} · {votes}"
