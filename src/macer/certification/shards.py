"""A data set certified by several processes: each writes a journal, and they become one."""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from macer.certification.data_set import Certification, certify_data_set
from macer.certification.header import difference
from macer.certification.journal import Contents, Records, open_journal, read_journal
from macer.certification.record import Record
from macer.certification.scope import images_of
from macer.certification.table import write_table
from macer.runs.names import JOURNAL, PARTS, TABLE
from macer.system.errors import Mistake
from macer.system.files import locked
from macer.system.processes import SINGLE, Ranks


def certify_together(
    certification: Certification,
    indices: Sequence[int],
    folder: Path,
    *,
    ranks: Ranks = SINGLE,
) -> Contents:
    """Certify images by all processes together; each writes to FOLDER/.parts/RANK until the end.

    First the parts of processes that died are put into the folder's journal, so that nothing that
    was recorded is done again. The number of processes may be another than before.
    """
    ranks.run_on_first(lambda: gather(folder))
    if ranks.count == 1:
        return certify_data_set(certification, indices, folder)
    # Certifies no image, but refuses settings that differ from those of the folder's journals.
    ranks.run_on_first(lambda: certify_data_set(certification, [], folder, asked=indices))
    done = _certified(certification.folders(folder))
    mine = [i for i in indices if i not in done][ranks.rank :: ranks.count]
    certify_data_set(certification, mine, folder / PARTS / str(ranks.rank))
    ranks.wait()
    ranks.run_on_first(lambda: gather(folder))
    return read_journal(folder / JOURNAL)


def gather(folder: Path) -> None:
    """Put the certificates of all parts into the folder, then remove the parts."""
    parts = folder / PARTS
    by_place: dict[Path, list[Path]] = {}  # . for hard certificates, bernstein-BETA for soft ones
    with ExitStack() as stack:
        for journal in sorted(parts.glob(f"**/{JOURNAL}")):
            stack.enter_context(locked(journal.parent))  # refuses one that is being written
            place = Path(*journal.parent.relative_to(parts).parts[1:])
            by_place.setdefault(place, []).append(journal.parent)
        for place, folders in by_place.items():
            try:
                merge_journals(folders, folder / place, known_wins=True)
            except Mistake as mistake:
                raise Mistake(f"{mistake}; or move away {parts}, certified otherwise") from mistake
        if by_place:
            shutil.rmtree(parts)


def _certified(folders: Iterable[Path]) -> set[int]:
    """The images that the journals of all folders have."""
    return set.intersection(*(set(read_journal(place / JOURNAL).records) for place in folders))


def merge_journals(folders: Sequence[Path], out: Path, *, known_wins: bool = False) -> Contents:
    """Put the certificates of several folders into one journal; all headers must be the same.

    Several machines or processes thus make the table that a single one would make. Nothing is
    written unless all of them agree. The result counts the damaged lines of all parts.

    Args:
        known_wins: keep the certificate that the result has of an image, even if a part has
            another; an image that is certified again on a GPU may get another one.
    """
    parts = [read_journal(folder / JOURNAL) for folder in folders]
    header = parts[0].header
    for folder, part in zip(folders, parts, strict=True):
        if differs := difference(header, part.header):
            name, first, other = differs
            raise Mistake(f"{name} must be {first} in {folder} as in {folders[0]}, got {other}")
    scopes = [part.scope for part in parts if part.scope is not None]
    with open_journal(out / JOURNAL, header) as journal:
        known = journal.contents.records
        theirs = [part.records for part in parts]
        _check_agreement(theirs if known_wins else [known, *theirs])
        if len(scopes) == len(parts):  # else the result does not say what was asked for either
            journal.state({i for scope in scopes for i in images_of(scope)})
        for part in parts:
            journal.append(record for idx, record in part.records.items() if idx not in known)
        write_table(journal.contents, out / TABLE)
    return replace(journal.contents, dropped=sum(part.dropped for part in parts))


def _check_agreement(sources: Sequence[Records]) -> None:
    """An image that several journals have must have the same certificate in all of them."""
    first: dict[int, Records] = {}
    for records in sources:
        for idx in records:
            known = first.setdefault(idx, records)
            if known is not records and _claim(known[idx]) != _claim(records[idx]):
                raise Mistake(
                    f"image {idx} of {records.path.parent} must have the certificate it has in "
                    f"{known.path.parent}, got another one"
                )


def _claim(record: Record) -> tuple[object, ...]:
    return record.certificate, record.label, record.pixels
