"""Several logs of certificates as one table, as curves and as a page."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from macer.data.selection import Selection
from macer.reporting import tables
from macer.reporting.logs import CertificateLog, lacking, read_log, select
from macer.reporting.markup import distinct
from macer.reporting.tables import ScoreTable
from macer.runs.zoo import certificates_folder, passed_over
from macer.system.errors import Mistake
from macer.system.progress import note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class LogTable:
    """Scores of logs, side by side; a notebook and `print` show the table."""

    paths: tuple[Path, ...]  # as they were named
    logs: tuple[CertificateLog, ...]
    images: Selection  # of each log
    radii: tuple[float, ...] | None = None  # of the table; None: up to the largest certified one

    @property
    def table(self) -> ScoreTable:
        """The figures: `table.rows[0].acr`, `table.rows[0].accuracies`, …"""
        return tables.tabulate(self.logs, self.radii)

    def markdown(self) -> str:
        """The table in Markdown."""
        return tables.markdown(self.table)

    def latex(self) -> str:
        """The table in LaTeX."""
        return tables.latex(self.table)

    def csv(self) -> str:
        """The table as comma-separated values, with radii that do not depend on the logs."""
        return tables.csv(tables.tabulate(self.logs, self.radii or tables.RADII))

    def figure(self) -> "Figure":
        """Radius–accuracy curves as a matplotlib figure."""
        from macer.reporting.curves import draw
        from macer.reporting.scores import curve

        return draw(self.logs, [curve(log) for log in self.logs])

    def write_page(
        self,
        path: Path | str,
        *,
        title: str = "Certified robustness",
        radius: float | None = None,
        data: Path | str | None = None,
        code: Collection[str] = (),
        attack: bool = False,
    ) -> Path:
        """Write a self-contained HTML page, as `macer report --html` does; return its path."""
        write_page_of(
            self.logs, self.paths, Path(path), images=self.images, title=title, radius=radius,
            data=None if data is None else Path(data), code=code, attack=attack,
        )  # fmt: skip
        return Path(path)

    def __repr__(self) -> str:
        return self.markdown()

    _repr_markdown_ = __repr__


def log_table(
    paths: Sequence[Path],
    images: Selection = Selection(),  # noqa: B008  frozen
    radii: Sequence[float] | None = None,
) -> LogTable:
    """The table of logs, of these images alone."""
    logs = [select(log, images) for log in read_logs(paths)]
    return LogTable(tuple(paths), tuple(logs), images, None if radii is None else tuple(radii))


def read_logs(paths: Sequence[Path]) -> list[CertificateLog]:
    """The logs, each with a name of its own; says which tables are behind their journals."""
    if not paths:
        raise Mistake("logs must name at least one run or log file, got none")
    for line in filter(None, map(passed_over, paths)):
        note(line)
    folders = [certificates_folder(path) for path in paths]
    logs = [read_log(folder) for folder in folders]
    for folder, log in zip(folders, logs, strict=True):
        if behind := lacking(folder, log):
            note(f"the table of {folder} lacks {behind} certificates; certify again to write it")
    names = distinct([log.name for log in logs], paths)
    return [replace(log, name=name) for log, name in zip(logs, names, strict=True)]


def write_page_of(
    logs: Sequence[CertificateLog],
    paths: Sequence[Path],
    html: Path,
    *,
    images: Selection,
    radius: float | None = None,
    data: Path | None = None,
    code: Collection[str] = (),
    attack: bool = False,
    title: str = "Certified robustness",
) -> None:
    """Write the page of logs.

    Args:
        paths: of the logs, as they were named.
        images: which of their images the logs have.
        radius: of the verdict.
        data: the folder of the data sets, for pictures; None: no pictures.
        code: modules that a journal may name for its data set, and a model file for its network.
        attack: the images of the pictures, by the model of the first run.
    """
    from macer.reporting.evidence import source
    from macer.reporting.page import PageOptions, write_page
    from macer.reporting.pictures import pictures
    from macer.reporting.provenance import provenance
    from macer.reporting.verdict import chosen_radius

    folders = list(map(certificates_folder, paths))
    known = [provenance(folder, log.name) for folder, log in zip(folders, logs, strict=True)]
    runs = [source(folder, log) for folder, log in zip(folders, logs, strict=True)]
    sources = list(filter(None, runs))
    if data is not None and not sources:
        raise Mistake("data must be given with a run, whose journal names them, got log files")
    shown = []
    if data is not None:
        path = next(path for path, run in zip(paths, runs, strict=True) if run)
        length, _ = chosen_radius(logs, radius)
        shown = pictures(sources[0], data, length, code=code, attack=path if attack else None)
    options = PageOptions(images, radius, sources, shown, attack)
    write_page(logs, html, title=title, models=list(filter(None, known)), options=options)
