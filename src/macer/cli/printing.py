"""What commands print on standard output: text for people, or one JSON document for programs."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from os import PathLike
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from macer import __version__
from macer.reporting.grid import Grid
from macer.system.errors import Mistake
from macer.system.processes import is_first
from macer.system.progress import end_first_sign, note
from macer.system.text import NO_BREAK, one_line, unbroken

if TYPE_CHECKING:
    from macer.reporting.logs import CertificateLog
    from macer.reporting.tables import ScoreTable

SCHEMA = 1  # of the JSON documents, which docs/json.md describes

Result = dict[str, Any]  # what a command returns: the content of its JSON document
Form = Literal["terminal", "csv", "latex", "markdown"]

_silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silenced(silent: bool = True) -> Iterator[None]:
    """Keep standard output empty; what other code prints there goes to standard error."""
    if not silent:
        yield
        return
    token = _silent.set(True)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _silent.reset(token)


def print_line(*fields: str) -> None:
    """Print one line on standard output: its fields without control characters, between tabs.

    A terminal narrower than a line of one field shows it broken between words, not in a number.
    """
    lines = ["\t".join(map(one_line, fields))]
    console = _console()
    if console.is_terminal and len(fields) == 1:
        text = unbroken(lines[0])
        lines = wrap(text, console.width, break_long_words=False, break_on_hyphens=False)
    print_text("\n".join(lines).replace(NO_BREAK, " ") + "\n")


def print_text(text: str) -> None:
    """Print text as it is; of several processes, only the first one prints."""
    if is_first() and not _silent.get():
        end_first_sign()
        sys.stdout.write(text)
        sys.stdout.flush()


def chosen_form(**flags: bool) -> Form:
    """The form that a flag asks for: its name; without any, tables for the terminal."""
    asked: list[Any] = [name for name, given in flags.items() if given]
    if len(asked) > 1:
        *others, last = (f"--{name}" for name in flags)
        raise Mistake(f"choose one of {', '.join(others)} and {last}")
    return asked[0] if asked else "terminal"


def printer_beside(form: Form) -> Callable[[str], None]:
    """What prints a line: on standard error, where a form must stand alone on standard output."""
    return print_line if form == "terminal" else note


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that cuts nothing off and splits no number; see `Grid`."""
    _console().print(Grid(header, rows))


def print_report(
    logs: Sequence["CertificateLog"],
    form: Form = "terminal",
    radii: Sequence[float] = (),
    *,
    intervals: bool = False,
) -> "ScoreTable":
    """Print the scores of logs as a table of a form; CSV has intervals always.

    Returns:
        The table of CSV and JSON, whose radii do not depend on the logs.
    """
    from macer.reporting import tables

    fixed = tables.tabulate(logs, radii or tables.RADII)
    if form == "csv":
        print_text(tables.csv(fixed))
        return fixed
    table = tables.tabulate(logs, radii or None)
    if form == "terminal":
        _console().print(tables.terminal(table, intervals=intervals))
    else:
        written = tables.latex if form == "latex" else tables.markdown
        print_text(written(table, intervals=intervals))
    return fixed


def print_document(command: str | None, content: Mapping[str, Any]) -> None:
    """Print a JSON document in one line; of several processes, only the first one prints."""
    document = {"schema": SCHEMA, "macer": __version__, "command": command, **content}
    print_text(json.dumps(plain(document), allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """A value for JSON: records as objects, paths as strings, NaN and infinity as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, PathLike) else value


def _console() -> Console:
    """Standard output; as wide as its tables where it is not a terminal."""
    quiet = not is_first() or _silent.get()
    console = Console(quiet=quiet)
    return console if console.is_terminal else Console(width=1000, quiet=quiet)
