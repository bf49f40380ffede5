"""`macer leaderboard`: the methods of the field and ours on the same images."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from macer.cli.printing import (
    Result,
    chosen_form,
    print_line,
    print_table,
    print_text,
    printer_beside,
)

if TYPE_CHECKING:
    from macer.reporting.leaderboard import Board
    from macer.reporting.named_logs import NamedLog


def leaderboard(
    *logs: Path,
    sigma: float | None = None,
    images: Literal["every-5th", "all", "both"] = "every-5th",
    csv: bool = False,
    latex: bool = False,
    markdown: bool = False,
    html: Path | None = None,
) -> Result:
    """ACR of the field's methods and ours on CIFAR-10, each from a log of the same images.

    Parameters
    ----------
    logs
        Run folders, log files and zoo:NAME, each to stand as a row, yours, on the board of its σ.
    sigma
        One level of noise, 0.25, 0.5 or 1; by default those of the logs, or all.
    images
        every-5th (2,000), on which macer's own models are certified, all 10,000, or both.
    csv
        Print CSV instead of tables for the terminal.
    latex
        Print LaTeX instead.
    markdown
        Print a page in Markdown instead.
    html
        Write a self-contained page whose tables can be sorted.
    """
    from macer.reporting import leaderboard_forms as forms
    from macer.reporting.leaderboard import boards, other_leagues
    from macer.reporting.leaderboard_csv import csv as csv_text

    form = chosen_form(csv=csv, latex=latex, markdown=markdown)
    others, named = other_leagues(), list["NamedLog"]()
    if logs:
        from macer.experiments.named_boards import named_boards

        found, named = named_boards(logs, sigma, images)
    else:
        found = boards(sigma, images)
    if html:
        from macer.reporting.leaderboard_page import write_leaderboard

        write_leaderboard(found, others, html, named)
    if csv:
        print_text(csv_text(found, named))
    elif latex:
        print_text(forms.latex(found, named))
    elif markdown:
        print_text(forms.markdown(found, others, named))
    else:
        _print_boards(found, named)
    if html:
        printer_beside(form)(f"page: {html}")
    document = {"images": images, "boards": found, "others": others, "html": html}
    return document | ({"logs": named} if logs else {})


def _print_boards(boards: "list[Board]", logs: "list[NamedLog]") -> None:
    """Print tables that fit a terminal of 80 columns, one below the other."""
    from macer.reporting import leaderboard_forms as forms
    from macer.reporting.leaderboard_notes import notes

    for board in boards:
        print_line(f"CIFAR-10, {forms.title(board)}")
        print_table(*forms.scores(board))
        print_line(f"certified accuracy by radius, σ {board.sigma:g}")
        print_table(*forms.accuracies(board))
        for grid in forms.pairs(board, logs):
            print_line(f"ACR minus that of others on the same images, σ {board.sigma:g}")
            print_table(*grid)
    for grid in forms.origins(boards):
        print_table(*grid)
    for line in notes(boards):
        print_line(line)
    print_line("Other leagues, figures only: --markdown, --html or --json.")
