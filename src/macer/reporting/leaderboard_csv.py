"""The leaderboard as comma-separated values."""

from collections.abc import Sequence

from macer.reporting import markup
from macer.reporting.leaderboard import Board, Rank, entries
from macer.reporting.named_logs import NamedLog, on_board
from macer.reporting.tables import RADII


def csv(boards: Sequence[Board], logs: Sequence[NamedLog] = ()) -> str:
    """All boards in one table of comma-separated values; what is unknown is empty.

    With logs there are further columns: their bounds, and their differences to each method.
    """
    header = ["sigma", "images", "rank", "method", "acr", "standard_error"]
    header += ["runner_up_acr", "runner_up_standard_error"]
    header += [f"to_{to}{of}" for to in ("reference", "best") for of in ("", "_standard_error")]
    header += [f"certified_accuracy_{r:.2f}" for r in RADII]
    header += ["reference", "best", "count", "n0", "n", "alpha", "seconds", "hardware"]
    header += ["network", "league", "paper", "source", "licence", "figures_only", "load"]
    lines = [_values(board, row) for board in boards for row in board.rows]
    if logs:
        methods = list(dict.fromkeys(entry.key for entry in entries()))
        header += ["bound", *(f"to_{key}{of}" for key in methods for of in ("", "_standard_error"))]
        own = [_of_log(board, row, logs, methods) for board in boards for row in board.rows]
        lines = [[*line, *more] for line, more in zip(lines, own, strict=True)]
    return markup.csv(header, lines)


def _of_log(
    board: Board, row: Rank, logs: Sequence[NamedLog], methods: Sequence[str]
) -> list[object]:
    """The bound of a named log and its differences; a method's row has none of them."""
    log = next((log for log in on_board(logs, board) if log.method == row.method), None)
    pairs = [log.to(key) if log else None for key in methods]
    values = [(d.difference, d.standard_error) if d else (None, None) for d in pairs]
    return [log.bound if log else None, *(value for pair in values for value in pair)]


def _values(board: Board, row: Rank) -> list[object]:
    both = (row.to_reference, row.to_best)
    pairs = [(d.difference, d.standard_error) if d else (None, None) for d in both]
    reading = row.runner_up or (None, None)
    settings = [board.reference, board.best, board.count, board.n0, board.n, board.alpha]
    about = [row.seconds, row.hardware, row.network, row.league, row.paper, row.source]
    return [
        *(board.sigma, board.images, row.rank, row.method, row.acr, row.standard_error),
        *reading,
        *(value for pair in pairs for value in pair),
        *row.accuracies,
        *settings,
        *about,
        *(row.licence, str(row.figures_only).lower(), row.load),
    ]
