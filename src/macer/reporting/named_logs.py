"""Logs that a user named, as rows of the leaderboard's boards, marked as the user's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from macer.reporting.leaderboard import YOURS, Board, ImageSet, Rank, Reading, ranked
from macer.reporting.scores import Difference


class MethodDifference(NamedTuple):
    """ACR of a named log minus that of a method whose log comes with macer, paired."""

    method: str
    difference: Difference


@dataclass(frozen=True)
class NamedLog:
    """A log on a board, beside what its row has."""

    method: str  # the key of its row, log:NAME
    sigma: float
    images: ImageSet
    path: str  # as it was named
    bound: str | None  # of its certificates; the row is by the board's
    unrecorded: tuple[str, ...]  # settings that the log does not have
    differences: tuple[MethodDifference, ...]

    def to(self, method: str) -> Difference | None:
        """Its difference to a method; None where that one's log does not come with macer."""
        found = (one.difference for one in self.differences if one.method == method)
        return next(found, None)


@dataclass(frozen=True)
class Figures:
    """The scores of a named log on a board."""

    name: str
    acr: float
    standard_error: float
    accuracies: tuple[float, ...]
    runner_up: Reading | None
    network: str
    note: str


def with_rows(board: Board, logs: Iterable[tuple[NamedLog, Figures]]) -> Board:
    """The board with rows of named logs, all rows ranked together."""
    rows = [*board.rows, *(_row(log, figures, board) for log, figures in logs)]
    places = ranked(rows, {row.method: row.name for row in rows})
    return replace(board, rows=tuple(replace(row, rank=place) for place, row in places))


def _row(log: NamedLog, figures: Figures, board: Board) -> Rank:
    return Rank(
        rank=0,  # `with_rows` knows it
        method=log.method,
        name=figures.name,
        acr=figures.acr,
        standard_error=figures.standard_error,
        runner_up=figures.runner_up,
        accuracies=figures.accuracies,
        to_reference=log.to(board.reference),
        to_best=log.to(board.best),
        seconds=None,
        hardware=None,
        network=figures.network,
        paper=None,
        source=log.path,
        licence=None,
        figures_only=False,
        load=None,
        note=figures.note,
        over_seeds=None,
        league=YOURS,
    )


def on_board(logs: Sequence[NamedLog], board: Board) -> list[NamedLog]:
    """The logs that have a row there."""
    return [log for log in logs if (log.sigma, log.images) == (board.sigma, board.images)]
