"""A data set certified by several processes, each some images, whose journals become one."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from macer.certification.journal import JOURNAL, PARTS, Contents, merge_journals, read_journal
from macer.errors import Mistake
from macer.system.files import locked
from macer.system.processes import SINGLE, Ranks


def certify_together(
    certify_into: Callable[[Path, Sequence[int], Sequence[int]], Contents],
    folder: Path,
    indices: Sequence[int],
    *,
    soft_betas: Sequence[float] = (),
    ranks: Ranks = SINGLE,
) -> Contents:
    """Certify images by all processes together: FOLDER/.parts/RANK is one's until the end.

    Parts that were left by processes that died are put into the folder's journal first, however
    many there were and are, so that nothing that was recorded is done again.

    Args:
        certify_into: `certify_data_set`, of a folder, the images to certify there now, and those
            that its journal is to state.
        soft_betas: of those certificates that it makes beside the hard ones.
    """
    ranks.run_on_first(lambda: gather(folder))
    if ranks.count == 1:
        return certify_into(folder, indices, indices)
    # Of no images: other settings than those of the folder's journals are refused at once.
    ranks.run_on_first(lambda: certify_into(folder, [], indices))
    done = _certified(folder, soft_betas)
    mine = [i for i in indices if i not in done][ranks.rank :: ranks.count]
    certify_into(folder / PARTS / str(ranks.rank), mine, mine)
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
        for place, some in by_place.items():
            try:
                merge_journals(some, folder / place, known_wins=True)
            except Mistake as mistake:
                raise Mistake(f"{mistake}; or move away {parts}, certified otherwise") from mistake
        if by_place:
            shutil.rmtree(parts)


def _certified(folder: Path, soft_betas: Sequence[float]) -> set[int]:
    """The images that all of the folder's journals have."""
    folders = [folder, *(folder / f"bernstein-{beta:g}" for beta in soft_betas)]
    return set.intersection(*(set(read_journal(where / JOURNAL).records) for where in folders))
