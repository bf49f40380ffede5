"""Tables in Markdown, LaTeX and CSV: every text stays a text."""

import csv as standard_csv
import io
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macer.reporting.markup import csv, latex_text, markdown
from macer.system.text import one_line

# law


@given(st.text(st.characters()))
def test_a_line_is_one_line_of_characters_that_can_be_seen(text):
    assert one_line(text).isprintable()
    assert len(one_line(text).splitlines()) <= 1
    assert one_line(one_line(text)) == one_line(text)


@pytest.mark.medium
def test_what_can_be_seen_stays_and_nothing_of_a_hidden_kind_does():
    """Cc: C0, DEL, C1. Cf: bidi, joiners. Zl, Zp: line separators. Cs: bytes that are no text."""
    for character in map(chr, range(sys.maxunicode + 1)):
        kind = unicodedata.category(character)
        if kind in ("Cc", "Cf", "Zl", "Zp", "Cs"):
            assert one_line(character).isascii() and one_line(character).startswith("\\")
        elif kind[0] in "LMNPS" or character == " ":
            assert one_line(character) == character


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1))
def test_a_reader_of_csv_finds_every_cell_in_its_place(rows):
    [_, *read] = standard_csv.reader(io.StringIO(csv(["a", "b"], rows), newline=""))
    assert [[cell.removeprefix("'") for cell in row] for row in read] == [
        [one_line(cell).removeprefix("'") for cell in row] for row in rows
    ]
    assert not any(
        cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in read for cell in row
    )


# known value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\x1b[31m\x9b\x7f\0", r"\x1b[31m\x9b\x7f\x00"),
        ("\u202egnp.exe\u2028\ufeff", r"\u202egnp.exe\u2028\ufeff"),
        ("\udcff", r"\udcff"),
        ("…±σ É 猫 🐈 a\\b", "…±σ É 猫 🐈 a\\b"),
    ],
)
def test_known_lines(text, shown):
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+a", "'+a"),
        ("-0.5", "'-0.5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", r"'\t=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        (-0.0012, "-0.0012"),
        (-3, "-3"),
        (None, ""),
        (float("nan"), ""),
        ('a,"b"\n', r'"a,""b""\n"'),
    ],
)
def test_known_cells_of_csv(value, cell):
    assert csv(["a", "b"], [["x", value]]) == f"a,b\nx,{cell}\n"


def test_markdown_and_latex_have_no_hidden_characters():
    assert markdown(["a"], [["b\x1b\u202e"]], ["c\n"]).splitlines()[2:] == [
        r"| b\\x1b\\u202e |",
        "",
        r"c\\n",
    ]
    assert latex_text("a\n") == r"a\textbackslash{}n"
