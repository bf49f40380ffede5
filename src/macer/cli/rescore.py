"""`macer rescore`: certificates by another bound or level, from the counts of a journal."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from macer.cli.audit import Certificates
from macer.cli.printing import Result, print_line, print_report
from macer.recipes.bound_names import FixedBoundName
from macer.runs.names import TABLE, rescored_file
from macer.runs.zoo import certificates_folder, in_zoo, user_folder

if TYPE_CHECKING:
    from macer.certification.header import Header


def rescore(
    run: Certificates,
    /,
    *,
    bound: FixedBoundName | None = None,
    alpha: float | None = None,
    out: Path | None = None,
) -> Result:
    """Certificates by another bound or level, from the counts that are there; samples nothing.

    Parameters
    ----------
    bound
        Bound to read the counts by; the journal's own by default.
    alpha
        Level for each image; the journal's own by default.
    out
        Folder for the table; that of the certificates by default, and runs/zoo-NAME for zoo:NAME.
    """
    from macer.audit.rescore import read_counts, rescored
    from macer.certification.data_set import check_out
    from macer.certification.table import rescored_lines
    from macer.reporting.logs import read_log
    from macer.system.files import write_pieces

    folder = certificates_folder(run)
    contents = read_counts(folder)
    header = contents.header
    reading: dict[str, Any] = {
        "bound": bound or header.bound,
        "alpha": header.alpha if alpha is None else alpha,
    }
    records = rescored(contents, **reading)
    place = out or (user_folder(run) if in_zoo(run) else folder)
    check_out(place, header.weights_sha256, header.split)
    place.mkdir(parents=True, exist_ok=True)
    file = rescored_file(place, **reading)
    write_pieces(file, (line.encode() for line in rescored_lines(header, records, **reading)))
    own = [read_log(folder)] if (folder / TABLE).is_file() else []
    table = print_report([*own, read_log(file)])
    print_line(f"table: {file}")
    print_line(_level_line(header, **reading))
    return {
        "folder": folder,
        "table": file,
        "certificates": len(records),
        **reading,
        "level": "fixed" if header.fixed(**reading) else "chosen",
        "report": table,
    }


def _level_line(header: "Header", bound: str, alpha: float) -> str:
    """Whether these are certificates at their level."""
    reading = f"{bound} at alpha {alpha:g}"
    if header.fixed(bound, alpha):
        return f"{reading} was fixed before the counts were drawn: certificates at level {alpha:g}"
    return (
        f"{reading} was chosen after the counts were drawn: not certificates at level {alpha:g}; "
        f"the journal fixed {', '.join([header.bound, *header.also])} at {header.alpha:g}"
    )
