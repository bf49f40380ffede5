"""`macer report` and `macer history`: scores of certificates, and how a training came to them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.printing import Form, Result, print_line, print_report, print_table, print_text
from macer.errors import Mistake
from macer.recipes import Whole
from macer.runs.zoo import certificates_folder

if TYPE_CHECKING:
    from macer.data.selection import Selection
    from macer.report.logs import CertificateLog


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
    evidence: Path | None = None,
    radius: float | None = None,
    data: Path | None = None,
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
    intervals
        Give 95% intervals over the images; CSV, JSON and the page always have them.
    csv
        Print CSV instead of a table for the terminal.
    latex
        Print LaTeX instead.
    markdown
        Print Markdown instead.
    html
        Write a self-contained page for a reviewer.
    evidence
        Write what one run's certificates show, with hashes and commands, as JSON to be signed.
    radius
        Radius of the verdict, which is printed too; the page and the evidence take σ by default.
    data
        Folder of the data sets, for pictures on the page of what the radius means.
    plot
        Draw radius–accuracy curves, PNG, PDF or SVG by the file's ending.
    """
    from macer.data.selection import Selection
    from macer.report.logs import select
    from macer.report.verdict import verdicts

    if not logs:
        raise Mistake("logs must name at least one run or log file, got none")
    if csv + latex + markdown > 1:
        raise Mistake("choose one of --csv, --latex and --markdown")
    _check_files(logs, html, evidence, data)
    images = Selection(start, stop, skip)
    chosen = [select(log, images) for log in _read_logs(logs)]
    judged = verdicts(chosen, radius)
    if plot:
        from macer.report.curves import plot as draw_curves

        draw_curves(chosen, plot)
    if html:
        _write_page(chosen, logs, html, images, radius, data)
    if evidence:
        _write_evidence(logs[0], chosen[0], evidence, images, radius)
    form: Form = "csv" if csv else "latex" if latex else "markdown" if markdown else "terminal"
    table = print_report(chosen, form, radii, intervals=intervals)
    say = _say_beside(form != "terminal")
    for verdict in judged if radius is not None else ():
        say(f"{verdict.name}: {verdict.sentence}")
    for what, file in (("curves", plot), ("page", html), ("evidence", evidence)):
        if file:
            say(f"{what}: {file}")
    return {
        **{"report": table, "verdicts": judged},
        **{"plot": plot, "html": html, "evidence": evidence},
    }


def _check_files(
    logs: Sequence[Path], html: Path | None, evidence: Path | None, data: Path | None
) -> None:
    """Refuse files that cannot be written, and flags that would have no effect."""
    from macer.report.evidence import check_evidence_path
    from macer.system.files import check_place

    if data is not None and html is None:
        raise Mistake("data must be given with html, for its pictures; add --html FILE")
    if evidence is not None:
        check_evidence_path(evidence)
        check_place(evidence)
        if len(logs) > 1:
            raise Mistake(f"evidence must be of one run, got {len(logs)}; name one")


def _read_logs(paths: Sequence[Path]) -> "list[CertificateLog]":
    """The logs with different names; says which tables are behind their journals."""
    from macer.report.logs import lacking, read_log
    from macer.report.markup import distinct
    from macer.system.progress import note

    folders = [certificates_folder(path) for path in paths]
    logs = [read_log(folder) for folder in folders]
    names = distinct([log.name for log in logs], paths)
    for folder, log in zip(folders, logs, strict=True):
        if behind := lacking(folder, log):
            note(f"the table of {folder} lacks {behind} certificates; certify again to write it")
    return [replace(log, name=name) for log, name in zip(logs, names, strict=True)]


def _write_page(
    logs: "Sequence[CertificateLog]",
    paths: Sequence[Path],
    html: Path,
    images: "Selection",
    radius: float | None,
    data: Path | None,
) -> None:
    from macer.report.evidence import source
    from macer.report.page import Asked, write_page
    from macer.report.pictures import pictures
    from macer.report.provenance import provenance
    from macer.report.verdict import chosen_radius

    folders = list(map(certificates_folder, paths))
    known = [provenance(folder, log.name) for folder, log in zip(folders, logs, strict=True)]
    runs = [source(folder, log) for folder, log in zip(folders, logs, strict=True)]
    sources = list(filter(None, runs))
    if data is not None and not sources:
        raise Mistake("data must be given with a run, whose journal names them, got log files")
    shown = pictures(sources[0], data, chosen_radius(logs, radius)[0]) if data is not None else []
    asked = Asked(images, radius, sources, shown)
    title = "Certified robustness"
    write_page(logs, html, title=title, models=list(filter(None, known)), asked=asked)


def _write_evidence(
    path: Path, log: "CertificateLog", file: Path, images: "Selection", radius: float | None
) -> None:
    from macer.report.evidence import evidence, source, write_evidence

    folder = certificates_folder(path)
    run = source(folder, log)
    if run is None:
        raise Mistake(f"evidence must be of a run with a journal, got {path}, which has none")
    write_evidence(evidence(run, images, radius), file)


def _say_beside(form_alone: bool) -> Callable[[str], None]:
    """How to say a line: on standard error if a form must stand alone on standard output."""
    from macer.system.progress import note

    return note if form_alone else print_line


def history(*runs: Path, csv: bool = False, plot: Path | None = None) -> Result:
    """How held-out accuracy and radius rose while runs were trained, over epochs and seconds.

    Parameters
    ----------
    runs
        Run folders, trained with --held-out, finished or not.
    csv
        Print CSV instead, of every look at the held-out images.
    plot
        Draw the radii, PNG, PDF or SVG by the file's ending.
    """
    from macer.report import history as histories
    from macer.report.figures import check_picture
    from macer.report.markup import distinct

    if not runs:
        raise Mistake("runs must name at least one run folder, got none")
    if plot:
        check_picture(plot)
    read = [histories.read_history(run) for run in runs]
    names = distinct([history.name for history in read], runs)
    read = [replace(history, name=name) for history, name in zip(read, names, strict=True)]
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
        _say_beside(csv)(f"curves: {plot}")
    return {"runs": read, "notes": notes, "plot": plot}
