"""Which file an image number means, and which files were left out, as tables beside the results.

files-test.tsv      idx, class and file of every image, in the order of their numbers
skipped-test.tsv    every file that was not read, and why
twice-test.tsv      every file that was found twice, in this split or in both, and the other one

and likewise for train. They are written for folders of photographs.
"""

from collections.abc import Sequence
from pathlib import Path

from macer.data.split import Split
from macer.system.files import write_pieces
from macer.system.progress import note
from macer.system.text import one_line


def tell(split: Split, lists: Sequence[Path] = ()) -> None:
    """Say what was read from a folder of photographs, and what was not.

    Args:
        lists: files that name all of what is skipped or found twice; a line names a few.
    """
    for line in split.account.lines() if split.account else ():
        note(line)
    if lists:
        note(f"all of them: {', '.join(map(str, lists))}")


def list_of_files(folder: Path, part: str) -> Path:
    """The table of a folder that says which file an image number means."""
    return folder / f"files-{part}.tsv"


def write_file_lists(split: Split, folder: Path, part: str) -> list[Path]:
    """Write the lists of a folder of photographs; return those of skipped files and of doubles.

    Args:
        part: train or test.
    """
    account = split.account
    if account is None:
        return []
    rows = [("idx", "class", "file")]
    for idx, (label, file) in enumerate(zip(split.labels, split.files, strict=True)):
        rows.append((str(idx), split.classes[label], file))
    _write(list_of_files(folder, part), rows)
    place = account.split
    skipped = [(f"{place}/{file}", why) for file, why in account.left_out()]
    twice = [(f"{place}/{file}", f"{place}/{first}") for file, first in account.twice]
    lists = {
        folder / f"skipped-{part}.tsv": (("file", "why"), skipped),
        folder / f"twice-{part}.tsv": (("file", "same as"), [*twice, *account.shared]),
    }
    for path, (head, listed) in lists.items():
        if listed:
            _write(path, [head, *listed])
        else:
            path.unlink(missing_ok=True)
    return [path for path, (_, listed) in lists.items() if listed]


def _write(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    write_pieces(path, ("\t".join(map(one_line, row)).encode() + b"\n" for row in rows))
