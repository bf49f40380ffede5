"""What commands print on standard output: lines, tables and the report of certificates."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from macer.ranks import is_first

if TYPE_CHECKING:
    from macer.logs import CertificateLog


def print_line(text: str) -> None:
    """Print one plain line on standard output."""
    print_text(text + "\n")


def print_text(text: str) -> None:
    """Print text as it is; of several processes the first one does."""
    if is_first():
        sys.stdout.write(text)
        sys.stdout.flush()


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that cuts nothing off; the names in its first column stay on one line."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    whole = max(len(row[0]) for row in rows)
    table.add_column(header[0], overflow="fold", min_width=whole, no_wrap=True)
    for name in header[1:]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _console().print(table)


def print_report(logs: Sequence["CertificateLog"], form: str = "terminal") -> None:
    """The scores of logs, as a table for the terminal, csv, latex or markdown."""
    from macer import tables

    table = tables.tabulate(logs)
    if form == "terminal":
        _console().print(tables.terminal(table))
    else:
        print_text(getattr(tables, form)(table))


def _console() -> Console:
    """Standard output; as wide as its tables when it is no terminal."""
    console = Console(quiet=not is_first())
    return console if console.is_terminal else Console(width=1000, quiet=not is_first())
