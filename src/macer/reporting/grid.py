"""Tables for terminals: columns side by side where they fit, else below; no number is split."""

import re
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from macer.system.text import NO_BREAK, one_line, unbroken

SHORT = 28  # characters of a cell that stays on one line, such as 0…9995, every 5th (2,000)
# A long cell may break after these, but not within 1e-05 or 12 min 30 s.
_PIECES = re.compile(r".*?(?:(?<!\de)[-/_]+| +|$)")


class Grid:
    """A table that fits a console; the columns that tell its rows apart begin every block."""

    def __init__(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = ""
    ) -> None:
        self.lines = [[one_line(cell) for cell in line] for line in (header, *rows)]
        self.title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(zip(*self.lines, strict=True))
        wide = [max(map(cell_len, column)) for column in columns]
        least = [max(map(_least_width, column)) for column in columns]
        keys = _keys(self.lines[1:])
        beside = [*least[1:keys], max(least[keys:], default=0)]
        least[0] = min(wide[0], max(least[0], options.max_width - _total([0, *beside])))
        title = self.title
        for block in _blocks(least, keys, options.max_width):
            yield self._table(block, _widths(block, wide, least, options.max_width), title)
            title = ""

    def _table(self, block: Sequence[int], widths: Sequence[int], title: str) -> Table:
        """The table of some columns, each as wide as given."""
        table = Table(
            title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        header, *rows = [
            [_wrapped(line[i], width) for i, width in zip(block, widths, strict=True)]
            for line in self.lines
        ]
        for i, name, width in zip(block, header, widths, strict=True):
            of_numbers = i and all(_is_number(line[i]) for line in self.lines[1:])
            table.add_column(name, justify="right" if of_numbers else "left", width=width)
        for row in rows:
            table.add_row(*row)
        return table


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, perhaps with an error, or stands for one."""
    return re.fullmatch(r"[-+−]?[\d.,]+(e-?\d+)?( ± ([\d.,]+|\?))?|[?—]?", cell) is not None


def _keys(rows: Sequence[Sequence[str]]) -> int:
    """How many columns tell the rows apart: at most three, and one if these do not."""
    for keys in (1, 2, 3):
        if len({tuple(row[:keys]) for row in rows}) == len(rows):
            return keys
    return 1


def _least_width(cell: str) -> int:
    """The least width of a cell: that of its text if this is short, else of its longest piece."""
    whole = cell_len(cell)
    return whole if whole <= SHORT else max(cell_len(piece.rstrip()) for piece in _pieces(cell))


def _pieces(cell: str) -> list[str]:
    return [piece.replace(NO_BREAK, " ") for piece in _PIECES.findall(unbroken(cell))]


def _blocks(least: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """The columns of each block: those that tell the rows apart, and as many others as fit.

    A last column that would stand alone takes the one before it along, if that leaves two there.
    """
    blocks = [list(range(keys))]
    for i in range(keys, len(least)):
        if len(blocks[-1]) > keys and _total([least[j] for j in [*blocks[-1], i]]) > width:
            blocks.append(list(range(keys)))
        blocks[-1].append(i)
    if len(blocks) > 1 and len(blocks[-1]) == keys + 1 and len(blocks[-2]) > keys + 2:
        together = [*blocks[-1][:keys], blocks[-2][-1], blocks[-1][-1]]
        if _total([least[j] for j in together]) <= width:
            blocks[-2:] = [blocks[-2][:-1], together]
    return blocks


def _total(widths: Sequence[int]) -> int:
    """The width of a table: a space and a rule beside each column."""
    return sum(widths) + 2 * len(widths) + 1


def _widths(
    block: Sequence[int], wide: Sequence[int], least: Sequence[int], width: int
) -> list[int]:
    """The width of each column: its longest cell's, or less for those of long texts."""
    widths = [least[i] for i in block]
    for place, i in enumerate(block):
        widths[place] += max(0, min(width - _total(widths), wide[i] - widths[place]))
    return widths


def _wrapped(cell: str, width: int) -> Text:
    """A cell in lines of at most this width, which end after spaces, hyphens and slashes."""
    lines = [""]
    for piece in _pieces(cell):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return Text("\n".join(line.rstrip() for line in lines), overflow="fold")
