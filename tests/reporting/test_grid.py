"""Tables for terminals: what fits stands side by side, and nothing is cut or split."""

import io
import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from examples import published_logs
from rich.console import Console

from macer.reporting.grid import Grid
from macer.reporting.tables import cells, tabulate, terminal
from macer.system.text import duration

_ERROR_OR_UNIT = r"(?: ± [\d.]+| (?:d|h|min|s)(?: \d+ (?:h|min|s))?)?"
NUMBER = re.compile(rf"\d+(?:[.,…]\d+)*(?:e-?\d+)?{_ERROR_OR_UNIT}")
WIDTHS = range(60, 201)

SIZES = ["3,290,378", "6,617,976", "0.784 ± 0.017", "0…9995, every 5th (2,000)", "100,000", "1e-05"]
ZOO = [
    [f"zoo:cifar10-{sigma}-record", "wide14", sigma, *SIZES] for sigma in ("0.25", "0.50", "1.00")
]
PAPER = [
    [f"MACER-{sigma}", sigma, of, *(f"0.{i}7{j}" for i in range(10)), "0.792 ± 0.013"]
    for j, sigma in enumerate(("0.25", "1"))
    for of in ("paper", "here")
]


def printed(grid: object, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(grid)
    return console.export_text()


def _header(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["name", *(f"column {i}" for i in range(1, len(rows[0])))]


@pytest.mark.medium
@pytest.mark.parametrize("rows", [ZOO, PAPER])
def test_at_every_width_each_cell_stands_on_one_line(rows: list[list[str]]) -> None:
    for width in WIDTHS:
        lines = printed(Grid(_header(rows), rows), width).splitlines()
        assert max(map(len, lines)) <= width
        for row in rows:
            for cell in row:
                assert any(f" {cell} " in line for line in lines), (width, cell)


@pytest.mark.medium
def test_at_every_width_no_number_of_any_cell_is_split() -> None:
    draw = random.Random(0)
    for width in WIDTHS:
        rows = [_random_row(draw) for _ in range(3)]
        text = printed(Grid(_header(rows), rows), width)
        assert max(map(len, text.splitlines())) <= width
        numbers = NUMBER.findall(text)
        for number in (number for row in rows for cell in row for number in NUMBER.findall(cell)):
            assert number in numbers, (width, number, text)


def _random_row(draw: random.Random) -> list[str]:
    name = "-".join(f"{draw.random() * 10 ** draw.randint(-6, 6):g}" for _ in range(9))
    figures = [f"{draw.random():.3f} ± {draw.random():.3f}" for _ in range(4)]
    prose = " ".join(
        f"{draw.randint(0, 10**6):,} images in {duration(10 ** draw.uniform(0, 6))}"
        for _ in range(8)
    )
    return [f"run-{name}", *figures, prose, f"{draw.randint(0, 10**9):,}", "1e-05"]


@pytest.mark.medium
def test_at_every_width_a_report_has_all_its_figures() -> None:
    logs = [replace(log, n=100_000, alpha=0.001) for log in published_logs()]
    table = tabulate(logs)
    figures = [cell for row in cells(table)[1] for cell in row[1:] if cell]
    for width in WIDTHS:
        lines = printed(terminal(table), width).splitlines()
        assert all(any(f" {figure} " in line for line in lines) for figure in figures)


def test_each_block_begins_with_the_columns_that_tell_the_rows_apart() -> None:
    lines = [line.split() for line in printed(Grid(_header(PAPER), PAPER), 60).splitlines()]
    blocks = sum(line[:1] == ["name"] for line in lines)
    assert blocks > 1
    assert sum(line[:3] == ["MACER-1", "1", "here"] for line in lines) == blocks


def test_columns_that_fit_stand_side_by_side() -> None:
    assert printed(Grid(["a", "b"], [["x", "1"]]), 60).count("a") == 1
    assert printed(Grid(_header(ZOO), ZOO), 200).count("name") == 1
    assert printed(Grid(_header(ZOO), ZOO), 80).count("name") > 1


def test_a_last_column_takes_the_one_before_it_along() -> None:
    """An α below a whole report would say little by itself."""
    header = ["name", "σ", "ACR", "images", "n", "α"]
    rows = [["cifar10-1.00-record", "1", *SIZES[2:5], "0.001"]]
    blocks = [line.split() for line in printed(Grid(header, rows), 80).splitlines()]
    assert [line for line in blocks if line[:1] == ["name"]] == [header[:4], ["name", *header[4:]]]
    few = printed(Grid(["a", "b", "c"], [["x", *2 * ["0.784 ± 0.017"]]]), 30)
    assert "c" in few.splitlines()[-4].split()  # two columns of figures have none to spare


def test_numbers_are_aligned_at_the_right_and_texts_at_the_left() -> None:
    text = printed(Grid(["a", "b", "c"], [["x", "1", "ab"], ["y", "10,000", "abcd"]]), 60)
    assert "      1  ab  " in text and " 10,000  abcd" in text
