"""`macer report` and `macer history`: scores of certificates, and how a training came to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.parameters import Code
from macer.cli.printing import (
    Result,
    chosen_form,
    print_line,
    print_report,
    print_table,
    print_text,
    printer_beside,
)
from macer.recipes import Whole
from macer.runs.zoo import certificates_folder
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from macer.data.selection import Selection
    from macer.reporting.logs import CertificateLog


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures on the page."""

    data: Path | None = None
    "Folder of the data sets, for pictures on the page of what the radius means."
    attack: bool = False
    "Attack the images of the pictures too, by the run's model: what it answers then."
    code: Code = ()


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
    pdf: Path | None = None,
    evidence: Path | None = None,
    radius: float | None = None,
    pictures: Pictures = Pictures(),
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
        Write a self-contained page for a reviewer.
    pdf
        Print that page into a PDF, by Chromium, Chrome or Edge, one of which must be installed.
    evidence
        Write what one run's certificates show, with hashes and commands, as JSON to be signed.
    radius
        Radius of the verdict, which is printed too; the page and the evidence take σ by default.
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
    from macer.reporting.log_table import read_logs
    from macer.reporting.logs import select
    from macer.reporting.verdict import verdicts

    if not logs:
        raise Mistake("logs must name at least one run or log file, got none")
    form = chosen_form(csv=csv, latex=latex, markdown=markdown)
    _check_files(logs, html, pdf, evidence, pictures)
    images = Selection(start, stop, skip)
    chosen = [select(log, images) for log in read_logs(logs)]
    judged = verdicts(chosen, radius)
    if plot:
        from macer.reporting.curves import plot as draw_curves

        draw_curves(chosen, plot, title=title, labels=labels, with_envelope=envelope)
    elif title is not None or labels or envelope:
        raise Mistake("plot must be given with title, labels and envelope; add --plot FILE")
    if html or pdf:
        _write_pages(chosen, logs, html, pdf, images, radius, pictures)
    if evidence:
        _write_evidence(logs[0], chosen[0], evidence, images, radius)
    table = print_report(chosen, form, radii, intervals=intervals)
    say = printer_beside(form)
    for verdict in judged if radius is not None else ():
        say(f"{verdict.name}: {verdict.sentence}")
    for what, file in (("curves", plot), ("page", html), ("PDF", pdf), ("evidence", evidence)):
        if file:
            say(f"{what}: {file}")
    return {
        "report": table, "verdicts": judged, "plot": plot, "html": html, "pdf": pdf,
        "evidence": evidence,
    }  # fmt: skip


def _write_pages(
    chosen: Sequence["CertificateLog"],
    logs: Sequence[Path],
    html: Path | None,
    pdf: Path | None,
    images: "Selection",
    radius: float | None,
    pictures: Pictures,
) -> None:
    """Write the page as HTML, as PDF, or as both."""
    from tempfile import TemporaryDirectory

    from macer.reporting.log_table import write_page_of
    from macer.reporting.print_page import print_page

    with TemporaryDirectory(prefix="macer-") as folder:
        page = html or Path(folder) / "page.html"
        write_page_of(
            chosen, logs, page, images=images, radius=radius,
            data=pictures.data, code=pictures.code, attack=pictures.attack,
        )  # fmt: skip
        if pdf:
            print_page(page, pdf)


def _check_files(
    logs: Sequence[Path],
    html: Path | None,
    pdf: Path | None,
    evidence: Path | None,
    pictures: Pictures,
) -> None:
    """Refuse files that cannot be written, and flags that would have no effect."""
    from macer.reporting.evidence import check_evidence_path
    from macer.reporting.print_page import check_pdf
    from macer.system.files import check_place

    if pictures.data is not None and html is None and pdf is None:
        raise Mistake("data must be given with html, for its pictures; add --html FILE")
    if pictures.attack and pictures.data is None:
        raise Mistake("data must be given with attack, whose images it attacks; add --data FOLDER")
    if pdf is not None:
        check_pdf(pdf)
        check_place(pdf)
    if evidence is not None:
        check_evidence_path(evidence)
        check_place(evidence)
        if len(logs) > 1:
            raise Mistake(f"evidence must be of one run, got {len(logs)}; name one")


def _write_evidence(
    path: Path, log: "CertificateLog", file: Path, images: "Selection", radius: float | None
) -> None:
    from macer.reporting.evidence import evidence, source, write_evidence

    folder = certificates_folder(path)
    run = source(folder, log)
    if run is None:
        raise Mistake(f"evidence must be of a run with a journal, got {path}, which has none")
    write_evidence(evidence(run, images, radius), file)


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
        printer_beside(chosen_form(csv=csv))(f"curves: {plot}")
    return {"runs": read, "notes": notes, "plot": plot}
