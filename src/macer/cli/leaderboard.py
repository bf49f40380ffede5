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


def leaderboard(
    *,
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
    sigma
        One level of noise, 0.25, 0.5 or 1; all by default.
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
    found, others = boards(sigma, images), other_leagues()
    if html:
        from macer.reporting.leaderboard_page import write_leaderboard

        write_leaderboard(found, others, html)
    if csv:
        print_text(csv_text(found))
    elif latex:
        print_text(forms.latex(found))
    elif markdown:
        print_text(forms.markdown(found, others))
    else:
        _print_boards(found)
    if html:
        printer_beside(form)(f"page: {html}")
    return {"images": images, "boards": found, "others": others, "html": html}


def _print_boards(boards: "list[Board]") -> None:
    """Print tables that fit a terminal of 80 columns, one below the other."""
    from macer.reporting import leaderboard_forms as forms
    from macer.reporting.leaderboard_notes import notes

    for board in boards:
        print_line(f"CIFAR-10, {forms.title(board)}")
        print_table(*forms.scores(board))
        print_line(f"certified accuracy by radius, σ {board.sigma:g}")
        print_table(*forms.accuracies(board))
    for grid in forms.origins(boards):
        print_table(*grid)
    for line in notes(boards):
        print_line(line)
    print_line("Other leagues, figures only: --markdown, --html or --json.")
