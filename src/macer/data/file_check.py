"""Look at image files before a training needs them: which are damaged, and what the others are.

A file's header is read, and the end of a JPEG. Its pixels are decoded only where it does not end as
a whole JPEG does, so that a million files take a minute on sixteen cores.
"""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from macer.data.account import Account
from macer.data.image_files import SIDE, ImageFiles
from macer.data.photograph import (
    THREADS,
    Traits,
    opened_image,
    traits,
    whole_image,
    without_warnings,
)
from macer.data.split import Split
from macer.system.errors import Mistake
from macer.system.progress import bar

_BLOCK = 1024  # files that wait for a thread at once
_END = b"\xff\xd9"  # of a JPEG


def undamaged(split: Split) -> Split:
    """A split of image files without those that are damaged, which its account names."""
    images = split.images
    assert isinstance(images, ImageFiles)
    found = _looked_at(images)
    kept = [i for i, one in enumerate(found) if isinstance(one, Traits)]
    damaged = _damaged(images, found)
    if not kept:
        raise Mistake(f"{images.folder} must have an undamaged image, got {len(damaged)} damaged")
    labels = split.labels[kept]
    headers = [one for one in found if isinstance(one, Traits)]
    account = Account(
        split=images.folder.name,
        images=len(kept),
        classes=len(set(labels.tolist())),
        size=(SIDE, SIDE),
        resized=True,
        megabytes=0.0,
        forms=Counter(header.form for header in headers),
        converted=_converted(headers),
        damaged=damaged,
    )
    kept_files = images[kept]
    files = tuple(f"{images.folder.name}/{name}" for name in kept_files.names)
    return replace(split, images=kept_files, labels=labels, files=files, account=account)


def refuse_damaged(images: ImageFiles) -> None:
    """Refuse damaged files before hours are spent on the others."""
    if damaged := _damaged(images, _looked_at(images)):
        more = f", and {len(damaged) - 1:,} others are damaged too" if len(damaged) > 1 else ""
        raise Mistake(
            f"{damaged[0][1]}{more}; mend or remove them, or add --skip-damaged to go on without "
            "them"
        )


def _looked_at(images: ImageFiles) -> list[Traits | str]:
    """What each file's header says, or why it is damaged."""
    found: list[Traits | str] = []
    names = images.names

    def attempt(name: str) -> Traits | str:
        file = images.folder / name
        try:
            return _whole_traits(file)
        except Mistake as mistake:
            return str(mistake)
        except OSError as error:
            return f"{file} must be a file that can be read: {error.strerror}"

    with (
        without_warnings(),
        ThreadPoolExecutor(THREADS) as pool,
        bar(f"looking at {images.folder.name}", len(names), "files", transient=True) as advance,
    ):
        for start in range(0, len(names), _BLOCK):
            found += pool.map(attempt, names[start : start + _BLOCK])
            advance(min(_BLOCK, len(names) - start))
    return found


def _whole_traits(file: Path) -> Traits:
    """What a file's header says; a file that may lack pixels is decoded."""
    header = traits(file)
    deep = any("16-bit" in text for text in header.converted)
    if header.form != "JPEG" or deep or not _ends(file):
        with opened_image(file) as image:
            whole_image(image, "RGB")
    return header


def _ends(file: Path) -> bool:
    """Whether a JPEG's last bytes are those of a whole one."""
    with file.open("rb") as stream:
        stream.seek(-min(len(_END), file.stat().st_size), os.SEEK_END)
        return stream.read() == _END


def _damaged(images: ImageFiles, found: Sequence[Traits | str]) -> list[tuple[str, str]]:
    pairs = zip(images.names, found, strict=True)
    return sorted((name, why) for name, why in pairs if isinstance(why, str))


def _converted(headers: Sequence[Traits]) -> Counter[str]:
    """What is done to files when they are read, in words."""
    counts = Counter(text for header in headers for text in header.converted)
    if grey := sum(header.grey for header in headers):
        counts["grey made RGB"] = grey
    if small := sum(min(header.size) < SIDE for header in headers):
        counts["enlarged"] = small
    return counts
