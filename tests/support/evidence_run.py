"""A folder of certificates without a network: a journal, its table, and a manifest."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from journals import HEADER, record_of

from macer.certification.journal import open_journal
from macer.certification.table import write_table
from macer.data.selection import Selection
from macer.reporting.evidence import Source, evidence, source
from macer.reporting.logs import read_log, select
from macer.runs.names import JOURNAL, MANIFEST, TABLE

RECIPE = {"loss": {"name": "macer", "lam": 4.0}, "model": "lenet", "dataset": "mnist", "seed": 1}


def write_run(folder: Path, *, images: int = 60, **entries: Any) -> Path:
    """Write a run whose header has these entries, with certificates of the first images."""
    folder.mkdir()
    header = replace(HEADER, **entries)
    with open_journal(folder / JOURNAL, header, range(images)) as journal:
        journal.append(record_of(idx) for idx in range(images))
        write_table(journal.contents, folder / TABLE)
    manifest = {"macer": "0.1.0", "recipe": RECIPE, "data_sha256": "ef" * 32, "commit": "12"}
    (folder / MANIFEST).write_text(json.dumps(manifest | {"versions": {"python": "3.11"}}))
    return folder


def source_of(folder: Path, images: Selection = Selection()) -> Source:  # noqa: B008
    found = source(folder, select(read_log(folder), images))
    assert found is not None
    return found


def evidence_of(
    folder: Path,
    images: Selection = Selection(),  # noqa: B008
    radius: float | None = None,
) -> dict[str, Any]:
    """The evidence of a run, as JSON has it."""
    document: dict[str, Any] = json.loads(
        json.dumps(evidence(source_of(folder, images), images, radius))
    )
    return document
