"""Certificates from a journal's counts by another bound or level; nothing is sampled again.

A bound holds at level α if it was fixed before the counts were drawn. A bound or a level that is
chosen after they were seen does not: whoever tries two and keeps the better one errs up to twice
as often. So a journal's header says which readings of its counts were fixed (`Header.fixed`), and
a table by any other says that it was chosen (`rescored_lines`).
"""

from dataclasses import replace
from pathlib import Path

from macer.audit.verify import check_complete, concluded, read_certificates, recompute
from macer.certification.header import Header
from macer.certification.journal import Contents
from macer.certification.record import Record
from macer.certification.settings import check_settings
from macer.smoothing.bounds import READINGS, SOFT_READINGS
from macer.system.errors import Mistake


def read_counts(folder: Path) -> Contents:
    """A folder's journal, if it is whole and its own certificates follow from its counts."""
    contents = read_certificates(folder)
    if contents.missing:
        asked = len(contents.missing) + len(contents.records)
        raise Mistake(
            f"{folder} must have the {asked} images that it was asked for, got "
            f"{len(contents.records)}; continue `macer certify` first"
        )
    check_complete(contents, partial=True)
    recompute(contents)
    return contents


def rescored(contents: Contents, *, bound: str, alpha: float) -> dict[int, Record]:
    """Each image's record, with the certificate that its counts give by the bound at level α.

    An image that a score did not estimate has no counts, and stays an abstention.
    """
    _check_reading(contents.header, bound, alpha)
    header = replace(contents.header, bound=bound, alpha=alpha)
    return {
        idx: replace(record, certificate=concluded(header, record))
        for idx, record in contents.records.items()
    }


def _check_reading(header: Header, bound: str, alpha: float) -> None:
    """Refuse a bound that the counts do not support, whenever it was chosen."""
    if header.radius is not None:
        raise Mistake(
            f"certificates must be of largest radii, got those of radius {header.radius:g}: how "
            "many samples they rest on depends on the votes, which no other bound allows"
        )
    known = next((names for names in (READINGS, SOFT_READINGS) if header.bound in names), ())
    if bound not in known:
        choice = f"one of {', '.join(known)}" if known else "left out"
        raise Mistake(f"bound must be {choice} for counts of {header.bound}, got {bound}")
    check_settings(
        sigma=header.sigma, n0=header.n0, n=header.n, alpha=alpha, bound=bound, beta=header.beta
    )
