"""The leaderboard as comma-separated values."""

from collections.abc import Sequence

from macer.reporting import markup
from macer.reporting.leaderboard import Board, Rank
from macer.reporting.tables import RADII


def csv(boards: Sequence[Board]) -> str:
    """All boards in one table of comma-separated values; what is unknown is empty."""
    header = ["sigma", "images", "rank", "method", "acr", "standard_error"]
    header += ["runner_up_acr", "runner_up_standard_error"]
    header += [f"to_{to}{of}" for to in ("reference", "best") for of in ("", "_standard_error")]
    header += [f"certified_accuracy_{r:.2f}" for r in RADII]
    header += ["reference", "best", "count", "n0", "n", "alpha", "seconds", "hardware"]
    header += ["network", "league", "paper", "source", "licence", "figures_only", "load"]
    lines = [_values(board, row) for board in boards for row in board.rows]
    return markup.csv(header, lines)


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
