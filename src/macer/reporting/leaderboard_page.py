"""The leaderboard as one self-contained HTML page, whose tables can be sorted.

A table marked data-sortable, each of its cells with the data-value that it is sorted by, can be
sorted by leaderboard.js; its titles look as leaderboard.css says. The documentation site has both.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from macer.reporting import leaderboard_forms as forms
from macer.reporting.html_file import check_html, write_html
from macer.reporting.leaderboard import Board, OtherLeague, Rank
from macer.reporting.leaderboard_notes import notes
from macer.reporting.named_logs import NamedLog
from macer.system.text import NO_BREAK, one_line, unbroken


def write_leaderboard(
    boards: Sequence[Board],
    others: Sequence[OtherLeague],
    path: Path,
    logs: Sequence[NamedLog] = (),
) -> None:
    """Write the page: a table for each board, notes, and the other leagues."""
    check_html(path)
    folder = resources.files("macer.reporting")
    script, style = (
        folder.joinpath(f"leaderboard.{kind}").read_text("utf-8") for kind in ("js", "css")
    )
    values = {
        "title": forms.TITLE,
        "lead": forms.LEAD,
        "boards": [{**section(board), "pairs": forms.pairs(board, logs)} for board in boards],
        "yours": bool(logs),
        "notes": notes(boards),
        "loading": forms.LOADING.replace("`", ""),
        "others": others,
        "others_note": forms.OTHERS,
        "style": style,
        "script": script,
        # The browser runs this script and no other.
        "script_hash": b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    write_html(
        path, "leaderboard.html.j2", values, filters={"unbroken": unbroken}, finalize=_printable
    )


def _printable(value: object) -> object:
    """A text without control characters; script and style stay as they are."""
    if type(value) is not str:
        return value
    return NO_BREAK.join(map(one_line, value.split(NO_BREAK)))


def section(board: Board) -> dict[str, Any]:
    """What a page has of a board: title, header, and each row with its cells."""
    grid = forms.whole(board)
    return {
        "title": forms.title(board),
        "header": grid.header[:-1],  # the network stands below the method's name
        "rows": [
            {
                "row": row,
                "cells": _cells(row, texts[2:-1], board),
                "where": _where(row),
            }
            for row, texts in zip(board.rows, grid.rows, strict=True)
        ],
    }


def _where(row: Rank) -> tuple[str, str]:
    """The command or the address, in two parts; a line may end between them."""
    text = forms.where_text(row)
    cut = text.index(row.load) if row.load else text.find("/") + 1
    return text[:cut], text[cut:]


def _cells(row: Rank, texts: Sequence[str], board: Board) -> list[tuple[str, str, object]]:
    """Each cell after name and rank: its text in two lines, and the value that it is sorted by."""
    values = sort_values(row, board)[2:]
    return [(*_lines(text), value) for text, value in zip(texts, values, strict=True)]


def sort_values(row: Rank, board: Board) -> list[object]:
    """The values that sort the columns of a page; empty ones come last."""
    values: list[object] = [row.name, row.rank, row.acr]
    if any(other.runner_up for other in board.rows):
        values.append(row.runner_up.acr if row.runner_up else "")
    values += [gap.difference if gap else 0 for gap in forms.differences(row, board)]
    values += [row.accuracies[i] for i in forms.radii(board)]
    return [*values, "" if row.seconds is None else row.seconds]


def _lines(text: str) -> tuple[str, str]:
    """A figure, and what stands below it: its error or its hardware."""
    figure, error, below = text.partition(" ± ")
    if error:
        return figure, f"± {below}"
    figure, _, below = text.partition(", ")
    return figure, below
