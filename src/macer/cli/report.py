"""`macer report` and `macer history`: scores of certificates, and how a training came to them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.printing import Form, Result, print_line, print_report, print_table, print_text
from macer.errors import Mistake
from macer.recipes import Whole
from macer.runs.zoo import certificates_folder, passed_over

if TYPE_CHECKING:
    from macer.reporting.logs import CertificateLog


def report(
    *logs: Path,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 1,
    radii: Annotated[
        tuple[float, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    intervals: bool = False,
    csv: bool = False,
    latex: bool = False,
    markdown: bool = False,
    html: Path | None = None,
    plot: Path | None = None,
    title: str | None = None,
    labels: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = (),
    envelope: bool = False,
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
    intervals
        Give 95% intervals over the images; CSV, JSON and the page always have them.
    csv
        Print CSV instead of a table for the terminal.
    latex
        Print LaTeX instead.
    markdown
        Print Markdown instead.
    html
        Write a self-contained page.
    plot
        Draw radius–accuracy curves, PNG, PDF or SVG by the file's ending.
    title
        First line above the plot; data set, σ and network by default, where the logs share them.
    labels
        Names of the plot's curves, one for each log.
    envelope
        Also draw the best certified accuracy at each radius over the logs, as one curve. No model
        has it: the best was chosen at each radius after seeing them.
    """
    from macer.data.selection import Selection
    from macer.reporting.logs import select

    if not logs:
        raise Mistake("logs must name at least one run or log file, got none")
    if csv + latex + markdown > 1:
        raise Mistake("choose one of --csv, --latex and --markdown")
    images = Selection(start, stop, skip)
    chosen = [select(log, images) for log in _read_logs(logs)]
    if plot:
        from macer.reporting.curves import plot as draw_curves

        draw_curves(chosen, plot, title=title, labels=labels, with_envelope=envelope)
    elif title is not None or labels or envelope:
        raise Mistake("plot must be given with title, labels and envelope; add --plot FILE")
    if html:
        _write_page(chosen, logs, html)
    form: Form = "csv" if csv else "latex" if latex else "markdown" if markdown else "terminal"
    table = print_report(chosen, form, radii, intervals=intervals)
    say = _say_beside(form != "terminal")
    for what, file in (("curves", plot), ("page", html)):
        if file:
            say(f"{what}: {file}")
    return {"report": table, "plot": plot, "html": html}


def _read_logs(paths: Sequence[Path]) -> "list[CertificateLog]":
    """The logs with different names; says which tables are behind their journals."""
    from macer.reporting.logs import lacking, read_log
    from macer.reporting.markup import distinct
    from macer.system.progress import note

    for line in filter(None, map(passed_over, paths)):
        note(line)
    folders = [certificates_folder(path) for path in paths]
    logs = [read_log(folder) for folder in folders]
    names = distinct([log.name for log in logs], paths)
    for folder, log in zip(folders, logs, strict=True):
        if behind := lacking(folder, log):
            note(f"the table of {folder} lacks {behind} certificates; certify again to write it")
    return [replace(log, name=name) for log, name in zip(logs, names, strict=True)]


def _write_page(logs: "Sequence[CertificateLog]", paths: Sequence[Path], html: Path) -> None:
    from macer.reporting.page import write_page
    from macer.reporting.provenance import provenance

    folders = map(certificates_folder, paths)
    known = [provenance(folder, log.name) for folder, log in zip(folders, logs, strict=True)]
    write_page(logs, html, title="Certified robustness", models=list(filter(None, known)))


def _say_beside(form_alone: bool) -> Callable[[str], None]:
    """How to say a line: on standard error if a form must stand alone on standard output."""
    from macer.system.progress import note

    return note if form_alone else print_line


def history(*runs: Path, csv: bool = False, plot: Path | None = None) -> Result:
    """How held-out accuracy and radius rose while runs were trained, over epochs and seconds.

    Parameters
    ----------
    runs
        Run folders, trained with --held-out, finished or not; others are named and left out.
    csv
        Print CSV instead, of every look at the held-out images.
    plot
        Draw the radii, PNG, PDF or SVG by the file's ending.
    """
    from macer.reporting import history as histories
    from macer.reporting.figures import check_picture
    from macer.reporting.markup import distinct
    from macer.system.progress import note

    if not runs:
        raise Mistake("runs must name at least one run folder, got none")
    if plot:
        check_picture(plot)
    looked = [run for run in runs if histories.has_looked(run)] or list(runs)
    set_aside = [run for run in runs if run not in looked]
    read = [histories.read_history(run) for run in looked]
    names = distinct([history.name for history in read], looked)
    read = [replace(history, name=name) for history, name in zip(read, names, strict=True)]
    if plot:
        histories.plot(read, plot)
    notes = [*histories.notes(read), *map(histories.without_looks, set_aside)]
    if csv:
        print_text(histories.csv(read))
        for line in map(histories.without_looks, set_aside):
            note(line)
    else:
        print_table(histories.HEADER, histories.rows(read))
        for line in notes:
            print_line(line)
    if plot:
        _say_beside(csv)(f"curves: {plot}")
    return {"runs": read, "notes": notes, "plot": plot}
