"""`macer report` and `macer history`: scores of certificates, and how a training came to them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macer.cli.printing import Result, print_line, print_report, print_table, print_text
from macer.errors import Mistake
from macer.recipes import Whole
from macer.runs.zoo import certificates_folder


def report(
    *logs: Path,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 1,
    radii: Annotated[
        tuple[float, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    csv: bool = False,
    latex: bool = False,
    markdown: bool = False,
    html: Path | None = None,
    plot: Path | None = None,
) -> Result:
    """Certified accuracy and ACR of runs and of the field's logs, gzipped or not.

    Parameters
    ----------
    logs
        Run folders, log files and zoo:NAME; differences are to the first.
    start
        First image to count.
    stop
        Image to stop before.
    skip
        Count only images whose number is a multiple of this.
    radii
        Radii to give the certified accuracy at; by default up to the largest certified one, and
        in CSV and JSON always 0, 0.25 … 4.
    csv
        Print CSV instead of a table for the terminal.
    latex
        Print LaTeX instead.
    markdown
        Print Markdown instead.
    html
        Write a self-contained page.
    plot
        Draw radius–accuracy curves, PNG or PDF by the file's ending.
    """
    from macer.data.selection import Images
    from macer.report.logs import lacking, read_log, select
    from macer.report.markup import distinct
    from macer.system.progress import note

    if not logs:
        raise Mistake("logs must name at least one run or log file, got none")
    if csv + latex + markdown > 1:
        raise Mistake("choose one of --csv, --latex and --markdown")
    images = Images(start, stop, skip)
    folders = [certificates_folder(path) for path in logs]
    read = [read_log(folder) for folder in folders]
    names = distinct([log.name for log in read], logs)
    read = [replace(log, name=name) for log, name in zip(read, names, strict=True)]
    for folder, log in zip(folders, read, strict=True):
        if behind := lacking(folder, log):
            note(f"the table of {folder} lacks {behind} certificates; certify again to write it")
    chosen = [select(log, images) for log in read]
    if plot:
        from macer.report.curves import plot as draw_curves

        draw_curves(chosen, plot)
    if html:
        from macer.report.page import write_page

        write_page(chosen, html, title="Certified robustness")
    form = "csv" if csv else "latex" if latex else "markdown" if markdown else "terminal"
    table = print_report(chosen, form, radii)
    tell = _beside(form != "terminal")
    for what, file in (("curves", plot), ("page", html)):
        if file:
            tell(f"{what}: {file}")
    return {"report": table, "plot": plot, "html": html}


def _beside(alone: bool) -> Callable[[str], None]:
    """Where a line goes: to standard error where a form stands alone on standard output."""
    from macer.system.progress import note

    return note if alone else print_line


def history(*runs: Path, csv: bool = False, plot: Path | None = None) -> Result:
    """How held-out accuracy and radius rose while runs were trained, over epochs and seconds.

    Parameters
    ----------
    runs
        Run folders, trained with --held-out, finished or not.
    csv
        Print CSV instead, of every look at the held-out images.
    plot
        Draw the radii, PNG or PDF by the file's ending.
    """
    from macer.report import history as histories
    from macer.report.figures import check_picture
    from macer.report.markup import distinct

    if not runs:
        raise Mistake("runs must name at least one run folder, got none")
    if plot:
        check_picture(plot)
    read = [histories.read_history(run) for run in runs]
    names = distinct([one.name for one in read], runs)
    read = [replace(one, name=name) for one, name in zip(read, names, strict=True)]
    if plot:
        histories.plot(read, plot)
    notes = histories.notes(read)
    if csv:
        print_text(histories.csv(read))
    else:
        print_table(histories.HEADER, histories.rows(read))
        for line in notes:
            print_line(line)
    if plot:
        _beside(csv)(f"curves: {plot}")
    return {"runs": read, "notes": notes, "plot": plot}
