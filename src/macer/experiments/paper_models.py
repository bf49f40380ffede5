"""The rows of a table or figure of the paper for programs: its figures, and those of our models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from macer.experiments.paper import Item
from macer.experiments.paper_logs import ShownLog
from macer.experiments.paper_runs import Reproduction
from macer.reporting.leaderboard import Reading
from macer.reporting.scores import Difference, average_certified_radius, standard_error
from macer.reporting.tables import ScoreRow, tabulate


class Published(NamedTuple):
    """The paper's figures of a row."""

    accuracies: tuple[float, ...]  # at the item's radii
    acr: float
    epoch_seconds: float | None
    epochs: int | None
    hours: float | None


@dataclass(frozen=True)
class Model:
    """A row of an item for programs: published figures, and those of our run."""

    name: str
    recipe: str
    run: str
    dataset: str
    sigma: float
    published: Published
    scores: ScoreRow | None  # of the certificates here
    epochs: int | None  # of the training here
    seconds: float | None
    remark: str
    stands: tuple["ShippedScores", ...]
    why: str


@dataclass(frozen=True)
class ShippedScores:
    """Certificates that come with macer and stand beside a row, for programs."""

    of: str
    scores: ScoreRow
    epochs: int | None
    seconds: float | None
    about: str  # whose model it is, or in what its training differs
    gain: Difference | None  # over the authors' model on the same images
    runner_up: Reading | None  # of the same counts by the bound chosen afterwards


def models(item: Item, entries: Sequence[Reproduction]) -> list[Model]:
    """The figures of an item's rows."""
    return [_model(entry, item.radii) for entry in entries]


def _model(entry: Reproduction, radii: Sequence[float]) -> Model:
    row, recipe = entry.row, entry.row.train_recipe()
    return Model(
        name=row.name,
        recipe=row.recipe,
        run=row.run(),
        dataset=recipe.dataset,
        sigma=recipe.sigma,
        published=Published(row.accuracies, row.acr, row.epoch_seconds, row.epochs, row.hours),
        scores=tabulate([entry.log], radii).rows[0] if entry.log else None,
        epochs=entry.epochs,
        seconds=entry.speed.get("seconds"),
        remark=entry.remark,
        stands=tuple(
            ShippedScores(
                of=one.of,
                scores=tabulate([one.log], radii).rows[0],
                epochs=one.epochs,
                seconds=one.seconds,
                about=one.about,
                gain=one.gain,
                runner_up=reading(one),
            )
            for one in entry.shipped
        ),
        why=entry.why,
    )


def reading(row: ShownLog) -> Reading | None:
    """A log's ACR by the runner-up's bound."""
    other = row.runner_up
    return Reading(average_certified_radius(other), standard_error(other)) if other else None
