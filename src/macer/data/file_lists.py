"""Which file an image number means, and which files were left out, as tables beside the results.

files-test.tsv      idx, class and file of every image, in the order of their numbers
skipped-test.tsv    every file that was not read, and why

and likewise for train. They are written for folders of photographs.
"""

from collections.abc import Sequence
from pathlib import Path

from macer.data.split import Split
from macer.system.files import write_pieces
from macer.system.progress import note
from macer.system.text import one_line


def tell(split: Split) -> None:
    """Say what was read from a folder of photographs, and what was not."""
    for line in split.account.lines() if split.account else ():
        note(line)


def list_of_files(folder: Path, part: str) -> Path:
    """The table of a folder that says which file an image number means."""
    return folder / f"files-{part}.tsv"


def write_file_lists(split: Split, folder: Path, part: str) -> None:
    """Write the lists of a folder of photographs; nothing for other data sets.

    Args:
        part: train or test.
    """
    if split.account is None:
        return
    rows = [("idx", "class", "file")]
    for idx, (label, file) in enumerate(zip(split.labels, split.files, strict=True)):
        rows.append((str(idx), split.classes[label], file))
    _write(list_of_files(folder, part), rows)
    left_out = folder / f"skipped-{part}.tsv"
    if skipped := split.account.left_out():
        _write(
            left_out, [("file", "why"), *((f"{split.account.split}/{a}", b) for a, b in skipped)]
        )
    else:
        left_out.unlink(missing_ok=True)


def _write(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    write_pieces(path, ("\t".join(map(one_line, row)).encode() + b"\n" for row in rows))
