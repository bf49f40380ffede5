"""Several logs of certificates as one table, as curves and as a page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from macer.data.selection import Selection
from macer.errors import Mistake
from macer.reporting import tables
from macer.reporting.logs import CertificateLog, lacking, read_log, select
from macer.reporting.markup import distinct
from macer.reporting.tables import ScoreTable
from macer.runs.zoo import certificates_folder
from macer.system.progress import note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LogTable:
    """Scores of logs, side by side; a notebook shows the table."""

    paths: tuple[Path, ...]  # as they were named
    logs: tuple[CertificateLog, ...]
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

    def write_page(self, path: Path | str, *, title: str = "Certified robustness") -> Path:
        """Write a self-contained HTML page; return its path."""
        from macer.reporting.page import write_page
        from macer.reporting.provenance import provenance

        folders = map(certificates_folder, self.paths)
        known = [
            provenance(folder, log.name) for folder, log in zip(folders, self.logs, strict=True)
        ]
        write_page(self.logs, Path(path), title=title, models=list(filter(None, known)))
        return Path(path)

    def _repr_markdown_(self) -> str:
        return self.markdown()


def log_table(
    paths: Sequence[Path],
    images: Selection = Selection(),  # noqa: B008  frozen
    radii: Sequence[float] | None = None,
) -> LogTable:
    """Read logs, each with a name of its own; say which tables are behind their journals."""
    if not paths:
        raise Mistake("logs must name at least one run or log file, got none")
    folders = [certificates_folder(path) for path in paths]
    logs = [read_log(folder) for folder in folders]
    names = distinct([log.name for log in logs], paths)
    for folder, log in zip(folders, logs, strict=True):
        if behind := lacking(folder, log):
            note(f"the table of {folder} lacks {behind} certificates; certify again to write it")
    named = [select(replace(log, name=name), images) for log, name in zip(logs, names, strict=True)]
    return LogTable(tuple(paths), tuple(named), None if radii is None else tuple(radii))
