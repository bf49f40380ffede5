"""The leaderboard as text: for the terminal, Markdown, LaTeX."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from macer.reporting import markup
from macer.reporting.leaderboard import Board, OtherLeague, Rank
from macer.reporting.leaderboard_notes import notes
from macer.reporting.named_logs import NamedLog, on_board
from macer.reporting.scores import Difference
from macer.reporting.tables import RADII
from macer.reporting.texts import (
    accuracy_texts,
    radius_text,
    setting,
    signed_with_error,
    with_error,
)
from macer.system.text import NO_BREAK, unbroken

Line = tuple[str, ...]


class TextTable(NamedTuple):
    """A table of text."""

    header: Line
    rows: Sequence[Line]


TITLE = "Leaderboard: certified ℓ₂ robustness on CIFAR-10"
LEAD = (
    "Randomized smoothing, single models, no extra data; each row is from a log of certificates, "
    "image by image. ACR is the average certified radius. Columns 0.00, 0.25 …: certified accuracy "
    "at that radius."
)
WHICH = {"every-5th": "every 5th test image", "all": "all test images"}

PAIRED = "paired difference to"


def title(board: Board) -> str:
    """The title of a board: its σ, images, n0, n, α."""
    return (
        f"σ {setting(board.sigma)}: {WHICH[board.images]} ({board.count:,}), n0 = {board.n0}, "
        f"n = {board.n:,}, α = {board.alpha:g}"
    )


def radii(board: Board) -> list[int]:
    """The places in RADII that a board shows: up to the last that a row reaches, ten at most."""
    last = max(i for row in board.rows for i, share in enumerate(row.accuracies) if share)
    return list(range(0, last + 1, 1 if last <= 10 else 2))


def scores(board: Board) -> TextTable:
    """Ranks, ACRs by both bounds, and differences."""
    names = {row.method: row.name for row in board.rows}
    daggers = any(row.runner_up for row in board.rows)
    header: Line = ("method", "#", "ACR", *(["runner-up †"] if daggers else []))
    header += tuple(f"− {names[to]}" for to in _compared(board))
    rows = []
    for row in board.rows:
        acr = with_error(row.acr, row.standard_error)
        line = (name_text(row), str(row.rank), acr, *([_dagger(row)] if daggers else []))
        rows.append(line + tuple(_difference(one, row) for one in differences(row, board)))
    return TextTable(header, rows)


def accuracies(board: Board) -> TextTable:
    """Certified accuracy at the radii of a board."""
    shown = radii(board)
    rows = [
        (name_text(row), str(row.rank), *accuracy_texts(row.accuracies[i] for i in shown))
        for row in board.rows
    ]
    return TextTable(("method", "#", *(radius_text(RADII[i]) for i in shown)), rows)


def pairs(board: Board, logs: Sequence[NamedLog]) -> list[TextTable]:
    """ACR of each named log on a board minus that of each method, paired; no table without logs."""
    rows = {row.method: row for row in board.rows}
    here = on_board(logs, board)
    if not here:
        return []
    lines = [
        (name_text(row), *(_difference(log.to(row.method), rows[log.method]) for log in here))
        for row in board.rows
        if not row.yours
    ]
    return [TextTable((PAIRED, *(name_text(rows[log.method]) for log in here)), lines)]


def origins(boards: Sequence[Board]) -> list[TextTable]:
    """Trainings, with the commands of our models, then with the addresses of published logs.

    Logs that a user named come last.

    80 columns wide at most, so that no terminal folds a command or an address.
    """
    grids = [_origins(boards, where) for where in ("command", "source", "log")]
    return [grid for grid in grids if grid.rows]


def _origins(boards: Sequence[Board], where: str) -> TextTable:
    """Each training of a kind, and where its certificates come from, with the σ of both."""
    found: dict[Line, set[float]] = {}
    for board in boards:
        for row in board.rows:
            if _where_title(row) == where:
                line = (name_text(row), training_text(row), where_text(row))
                found.setdefault(line, set()).add(board.sigma)
    rows = [
        (line[0], ", ".join(map(setting, sorted(found[line]))), *line[1:])
        for line in sorted(found, key=lambda line: (line[0].lower(), min(found[line])))
    ]
    return TextTable(("method", "σ", "training", where), rows)


def _where_title(row: Rank) -> str:
    """The title above what `where_text` gives."""
    if row.yours:
        return "log"
    return "command" if row.load else "source"


def differences(row: Rank, board: Board) -> list[Difference | None]:
    """A row's differences to the methods that a board compares with."""
    both = {board.reference: row.to_reference, board.best: row.to_best}
    return [both[to] for to in _compared(board)]


def _compared(board: Board) -> list[str]:
    return list(dict.fromkeys([board.reference, board.best]))


def name_text(row: Rank) -> str:
    """A method's name; ‡ where its log does not come with macer, and whether it is the user's."""
    if row.yours:
        return f"{row.name} (yours)"
    return f"{row.name} ‡" if row.figures_only else row.name


def where_text(row: Rank) -> str:
    """The command that certifies an image by our model, or the log's address or place."""
    return f"macer predict {row.load} IMAGE" if row.load else row.source.removeprefix("https://")


def training_text(row: Rank) -> str:
    """How long the training took, in seconds or hours, and on what; — where it is not known."""
    if row.seconds is None:
        return "—"
    short = row.seconds < 3600
    time = f"{row.seconds:.0f} s" if short else f"{row.seconds / 3600:.1f} h"
    return f"{time}, {row.hardware}"


def _dagger(row: Rank) -> str:
    return f"{row.runner_up.acr:.3f} †" if row.runner_up else ""


def _difference(difference: Difference | None, row: Rank) -> str:
    if difference is None:
        return "—" if row.yours else ""
    return signed_with_error(difference.difference, difference.standard_error)


def whole(board: Board) -> TextTable:
    """Scores, accuracies and origin side by side."""
    left, middle = scores(board), accuracies(board)
    header = (*left.header, *middle.header[2:], "training", "network")
    rows = [
        (*line, *shares[2:], training_text(row), row.network)
        for line, shares, row in zip(left.rows, middle.rows, board.rows, strict=True)
    ]
    return TextTable(header, rows)


def others_grid(others: Sequence[OtherLeague]) -> TextTable:
    """The models of other leagues."""
    rows = [
        (
            model.name,
            model.league,
            model.figures,
            model.conditions,
            model.beside,
            f"[{model.paper}]",
            model.source,
        )
        for model in others
    ]
    header = ("model", "league", "figures", "conditions", "ours", "paper", "source")
    return TextTable(header, rows)


def markdown(
    boards: Sequence[Board], others: Sequence[OtherLeague], logs: Sequence[NamedLog] = ()
) -> str:
    """A page in Markdown: a table for each σ, where the rows come from, and the other leagues."""
    parts = [f"# {TITLE}\n\n{LEAD}\n"]
    for board in boards:
        parts.append(f"## {title(board)}\n\n{table(board)}")
        parts += [unbroken(markup.markdown(*grid, ())) for grid in pairs(board, logs)]
    parts.append("\n\n".join(notes(boards, markup.markdown_text)) + "\n")
    parts.append(f"## Sources\n\n{LOADING}\n")
    parts += [_of_words(_with_papers(grid, boards)) for grid in origins(boards)]
    parts.append(f"## Other leagues\n\n{OTHERS}\n\n{_of_words(others_grid(others))}")
    return unbroken("\n".join(parts))


def table(board: Board) -> str:
    """The table of a board in Markdown; no line ends within a number."""
    return unbroken(markup.markdown(*whole(board), ()))


def _with_papers(grid: TextTable, boards: Sequence[Board]) -> TextTable:
    """With the key of each method's paper, where there are any."""
    papers = {name_text(row): row.paper for board in boards for row in board.rows if row.paper}
    rows = [(name, f"[{papers[name]}]", *rest) for name, *rest in grid.rows if name in papers]
    return TextTable((grid.header[0], "paper", *grid.header[1:]), rows) if rows else grid


def _of_words(grid: TextTable) -> str:
    """A table in Markdown whose columns all begin at the left.

    Commands are code, addresses are links, and no line ends within a list.
    """
    head, rule, *rest = markup.markdown(*grid, ()).splitlines(keepends=True)
    lines = "".join(rest)
    lines = re.sub(r"macer predict \S+ IMAGE", r"`\g<0>`", lines)
    lines = re.sub(r"(?:https://)?((?:github\.com|arxiv\.org)/\S+)", r"[\1](https://\1)", lines)
    lines = re.sub(r"(?<=\d,) (?=[\d.]+(?:,| \|))", NO_BREAK, lines)  # 0.25, 0.5, 1
    return "".join([head, rule.replace("--:", ":--"), lines])


LOADING = (
    "IMAGE is a file of 32 × 32 pixels. `zoo:NAME` stands for the model in every other command, "
    "such as `macer verify`, and in `macer.load_model`."
)
OTHERS = (
    "More data, several networks, or noise that depends on the input: figures only, not ranked."
)


def latex(boards: Sequence[Board], logs: Sequence[NamedLog] = ()) -> str:
    """A table for each σ, with booktabs' rules."""
    below = [note.replace("†", "*").replace("‡", "**") for note in notes(boards)]
    grids = [
        (grid, title(board)) for board in boards for grid in (whole(board), *pairs(board, logs))
    ]
    texts = []
    for i, (grid, name) in enumerate(grids):
        lines = [[_starred(cell) for cell in line] for line in (grid.header, *grid.rows)]
        last = below if i == len(grids) - 1 else []
        texts.append(markup.latex(lines[0], lines[1:], [name, *last]))
    return "\n".join(texts)


def _starred(cell: str) -> str:
    """A cell with marks that every font has."""
    return cell.replace(" †", "*").replace(" ‡", "**").replace("—", "–")
