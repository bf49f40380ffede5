"""A journal's header, and journals written anew as a forger would: with right checksums."""

from functools import cache
from pathlib import Path

import numpy as np

from macer.certification.certificate import Certificate
from macer.certification.header import Header
from macer.certification.journal import open_journal, read_journal
from macer.certification.record import Record
from macer.certification.scope import images_of
from macer.certification.table import write_table
from macer.runs.names import JOURNAL, TABLE

HEADER = Header(
    macer="0.1.0", torch="2.13.0", model="lenet", weights_sha256="ab" * 32, dataset="mnist",
    data_sha256="cd" * 32, sigma=0.25, chunk=100, rows=100, device="cpu", cpu="AVX2", tf32=False,
    family=None, outputs=[[1.0, -2.0]], n0=100, n=1000, alpha=0.001, bound="clopper-pearson",
    beta=1.0, radius=None, exact=True, row_by_row=False, seed=0, score=False, precision="fp32",
)  # fmt: skip
ENTRIES = HEADER.to_json()


@cache
def record_of(idx: int) -> Record:
    """A record that is a function of its image's number."""
    draw = np.random.default_rng(idx)
    counts = tuple(map(int, draw.integers(1000, size=3)))
    label = int(draw.integers(-1, 3))
    radius = float(draw.random()) if label >= 0 else 0.0
    certificate = Certificate(
        label, radius, max(label, 0), float(draw.random()), counts, counts[::-1], 1000, counts
    )
    return Record(idx, int(draw.integers(3)), certificate, float(draw.random()))


def rewrite(folder: Path, change=lambda record: record, *, header=None, asked=None) -> None:
    """Write a folder's journal and table anew: other records, another header or other images.

    Args:
        change: of each record; None leaves it out.
        header: entries that replace those of the header.
        asked: the images that the journal states; by default those it stated.
    """
    path = folder / JOURNAL
    contents = read_journal(path)
    records = [change(record) for record in contents.records.values()]
    path.unlink()
    stated = images_of(contents.scope or ()) if asked is None else asked
    forged = Header.from_json(contents.header.to_json() | (header or {}))
    with open_journal(path, forged, stated) as journal:
        journal.append(record for record in records if record is not None)
        write_table(journal.contents, folder / TABLE)
