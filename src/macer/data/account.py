"""What was read from a folder of photographs: counts, and the names of what was not read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_SHOWN = 3  # names in a line; lists of all are written beside the results


@dataclass(frozen=True, kw_only=True)
class Account:
    """What was read, converted, left out and found twice in one split."""

    split: str  # the name of its folder
    images: int
    classes: int
    size: tuple[int, int]  # height, width
    resized: bool
    megabytes: float  # of memory; 0 where images stay in their files
    forms: Counter[str]
    converted: Counter[str]
    skipped: Sequence[tuple[str, str]] = ()  # files that are no images, and why
    damaged: Sequence[tuple[str, str]] = ()
    empty: Sequence[str] = ()  # classes
    unread: Sequence[str] = ()  # folders beside the two splits
    twice: Sequence[tuple[str, str]] = ()  # a file, and one before it with the same pixels
    relabelled: int = 0  # of them, under another class
    shared: Sequence[tuple[str, str]] = field(default=())  # a file, and one of the other split

    def lines(self) -> list[str]:
        """The account in one line, and one more for each thing to look at."""
        lines = [f"{self.split}: {self._summary()}"]
        if self.damaged:
            names = some(name for name, _ in self.damaged)
            lines.append(f"{self.split}: left out {_count(self.damaged, 'damaged file')}: {names}")
        if self.empty:
            lines.append(f"{self.split}: classes without images: {', '.join(self.empty)}")
        if self.unread:
            lines.append(f"not read, since there is a test folder: {', '.join(self.unread)}")
        if self.twice:
            other = f", {self.relabelled} of them in two classes" if self.relabelled else ""
            pairs = some(f"{again} is {first}" for again, first in self.twice)
            lines.append(f"{self.split}: {len(self.twice):,} found twice{other}: {pairs}")
        if self.shared:
            pairs = some(f"{name} is {other}" for name, other in self.shared)
            count = _count(self.shared, "image")
            lines.append(f"{count} found in training and test both: {pairs}")
        return lines

    def _summary(self) -> str:
        height, width = self.size
        how = "the middle of each resized to" if self.resized else "of"
        if self.resized and not self.megabytes:
            how = "a part of each resized to"
        parts = [
            f"{self.images:,} images in {self.classes} classes: {_counts(self.forms)}",
            f"{how} {width}×{height} pixels, {self._place()}",
        ]
        if self.converted:
            parts.append(_counts(self.converted))
        if self.skipped:
            names = some(name for name, _ in self.skipped)
            count = _count(self.skipped, "other file")
            parts.append(f"skipped {count}: {names}")
        return "; ".join(parts)

    def _place(self) -> str:
        """Where the pixels are."""
        if not self.megabytes:
            return "read from the files when they are needed"
        return f"{self.megabytes:,.1f} MB in memory"

    def left_out(self) -> list[tuple[str, str]]:
        """Every file that was not read, and why."""
        return sorted([*self.skipped, *self.damaged])


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counter.most_common())


def _count(things: Sequence[object], one: str) -> str:
    return f"{len(things):,} {one}{'s' if len(things) != 1 else ''}"


def some(names: Iterable[str]) -> str:
    """The first few of many names, and how many more there are."""
    listed = list(names)
    more = len(listed) - _SHOWN
    if more <= 0:
        return ", ".join(listed)
    return ", ".join(listed[:_SHOWN]) + f" and {more:,} other{'s' if more > 1 else ''}"
