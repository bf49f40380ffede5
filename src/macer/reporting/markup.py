"""Tables for people and programs: Markdown, LaTeX, comma-separated values."""

import io
import math
import re
from collections.abc import Iterable, Sequence
from csv import writer
from pathlib import Path
from typing import Any

from macer.system.text import one_line


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Iterable[str]) -> str:
    """A table in Markdown, its notes below."""
    rule = [":--"] + ["--:"] * (len(header) - 1)
    lines = [
        list(map(markdown_text, header)),
        rule,
        *(list(map(markdown_text, row)) for row in rows),
    ]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + "".join(f"\n{markdown_text(note)}\n" for note in notes)


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Iterable[str]) -> str:
    """A table in LaTeX with booktabs' rules, its notes below."""
    lines = [" & ".join(latex_text(cell) for cell in row) + r" \\" for row in [header, *rows]]
    parts = [
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {latex_text(note)}\par}}" for note in notes),
    ]
    return "\n".join(parts) + "\n"


def csv(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table as comma-separated values; None and NaN are empty, and no text is a formula."""
    text = io.StringIO()
    lines = writer(text, lineterminator="\n")
    lines.writerow(header)
    lines.writerows(map(_csv_cell, row) for row in rows)
    return text.getvalue()


def distinct(names: Sequence[str], places: Sequence[Path]) -> list[str]:
    """Names for the rows of a table; a name that several rows share is replaced by its place."""
    return [
        str(place) if names.count(name) > 1 else name
        for name, place in zip(names, places, strict=True)
    ]


def markdown_text(text: str) -> str:
    """Text with Markdown's special characters escaped."""
    return re.sub(r"([\\`*|<\[])", r"\\\1", one_line(text))


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped, and mathematical symbols in maths mode."""
    return "".join(_LATEX.get(character, character) for character in one_line(text))


_LATEX = {
    **{character: f"\\{character}" for character in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "…": r"\,\ldots\,",
    "±": r"$\pm$",
    "−": r"$-$",
    "·": r"$\cdot$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "σ": r"$\sigma$",
    "λ": r"$\lambda$",
    "γ": r"$\gamma$",
    "β": r"$\beta$",
    "ε": r"$\varepsilon$",
    "–": "--",
    "α": r"$\alpha$",
    "ℓ": r"$\ell$",
    "₂": r"$_2$",
}


def _csv_cell(value: Any) -> Any:
    """A value, or nothing if it is unknown; a text that looks like a formula begins with '."""
    if isinstance(value, str):
        return f"'{one_line(value)}" if value.startswith(_FORMULAS) else one_line(value)
    unknown = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if unknown else value


# Characters that begin a formula in a spreadsheet, the wide ones too.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
