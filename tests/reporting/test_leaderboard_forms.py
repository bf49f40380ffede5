"""The leaderboard as text: what stands in it, and that no terminal splits a number."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from macer.cli import printing
from macer.cli.app import main
from macer.reporting import leaderboard_forms as forms
from macer.reporting import leaderboard_notes
from macer.reporting.leaderboard import boards, other_leagues
from macer.reporting.tables import RADII

DOCS = Path(__file__).parents[2] / "docs"


# law


def test_the_page_of_the_documentation_is_the_markdown_of_every_board():
    page = (DOCS / "results/leaderboard.md").read_text("utf-8")
    assert page == forms.markdown(boards(), other_leagues()), (
        "macer leaderboard --images both --markdown > docs/results/leaderboard.md"
    )


def test_80_columns_hold_every_table_and_split_no_number(capsys, monkeypatch):
    def narrow() -> Console:
        return Console(width=80)

    assert main(["leaderboard", "--images", "both"]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setattr(printing, "_console", narrow)
    assert main(["leaderboard", "--images", "both"]) == 0
    out = capsys.readouterr().out
    assert out.split() == wide.split()
    rows = [line for line in out.splitlines() if re.match(r" *(macer record|MACER) ", line)]
    assert len(rows) == 3 * 3 + 2 * 6 + 2  # scores and accuracies of each board, and the origins
    assert all("zoo:" in row or re.search(r"\d\.\d{3}|σ|—|github", row) for row in rows)
    places = {forms.where_text(row) for board in boards() for row in board.rows}
    assert all(any(f" {place} " in line for line in out.splitlines()) for place in places)


def test_marks_stand_where_they_belong():
    [board] = boards(1.0, "every-5th")
    header, rows = forms.scores(board)
    names = {row[0] for row in rows}
    assert {"Sun et al. ‡", "SmoothMix ‡", "MACER"} <= names
    column = header.index("runner-up †")
    assert {row[0] for row in rows if row[column].endswith("†")} == {"macer record", "macer fast"}
    assert leaderboard_notes.DAGGER in leaderboard_notes.notes(
        [board]
    ) and leaderboard_notes.FIGURES_ONLY in leaderboard_notes.notes([board])


def test_each_of_our_models_has_its_command_and_each_published_log_its_address():
    ours, published = forms.origins(boards())
    loads = {row.load for board in boards() for row in board.rows if row.load}
    assert sorted(row[-1] for row in ours.rows) == sorted(
        f"macer predict {load} IMAGE" for load in loads
    )
    assert all(row[-1].startswith("github.com/") for row in published.rows)
    [alone] = forms.origins(boards(images="all"))
    assert alone.rows == published.rows
    page = forms.markdown(boards(), other_leagues())
    assert all(page.count(f"| `{row[-1]}` |") == 1 for row in ours.rows)


@pytest.mark.slow
def test_the_command_of_a_row_certifies_an_image(tmp_path, capsys):
    [row] = [row for row in boards(0.25, "every-5th")[0].rows if row.method == "fast"]
    image = tmp_path / "image.png"
    Image.new("RGB", (32, 32), "white").save(image)
    command = forms.where_text(row).replace("IMAGE", str(image)).split()
    assert main([*command[1:], "--n0", "10", "--n", "10"]) == 0
    assert capsys.readouterr().out.startswith(f"{image}\t")


def test_a_board_without_ours_says_so_and_has_no_second_bound():
    [board] = boards(0.5, "all")
    assert "runner-up †" not in forms.scores(board).header
    assert leaderboard_notes.WITHOUT_OURS in leaderboard_notes.notes(
        [board]
    ) and leaderboard_notes.DAGGER not in leaderboard_notes.notes([board])
    assert leaderboard_notes.WITHOUT_OURS not in leaderboard_notes.notes(boards(0.5, "every-5th"))


def test_where_the_best_is_the_reference_one_column_compares():
    [board] = boards(0.5, "all")
    board = replace(board, best=board.reference)
    assert [cell for cell in forms.scores(board).header if cell.startswith("−")] == ["− MACER"]
    assert forms.differences(board.rows[0], board) == [board.rows[0].to_best]


@pytest.mark.medium
def test_the_command_does_not_import_torch():
    code = (
        "import sys; from macer.cli.app import main; "
        "sys.exit(main(['leaderboard', '--markdown']) or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_notes_of_rows_stand_below_once():
    below = leaderboard_notes.notes(boards())
    assert len(below) == len(set(below))
    assert [note for note in below if note.startswith("MACER: ")]
    assert [note for note in below if note.startswith("SmoothAdv: ")]


# known value


def test_cells_of_a_record():
    [board] = boards(0.5, "every-5th")
    assert forms.title(board) == (
        "σ 0.5: every 5th test image (2,000), n0 = 100, n = 100,000, α = 0.001"
    )
    grid = forms.whole(board)
    assert grid.header[:6] == ("method", "#", "ACR", "runner-up †", "− MACER", "− Sun et al.")
    assert grid.rows[0][:7] == (
        *("macer record", "1", "0.784 ± 0.017", "0.792 †"),
        *("+0.094 ± 0.007", "+0.020 ± 0.006", "0.623"),
    )
    assert grid.rows[0][-2:] == ("391 s, H200", "wide14")
    assert {row[-2] for row in grid.rows if row[0] == "MACER"} == {"61.6 h, P100"}


@pytest.mark.parametrize(
    ("sigma", "shown"),
    [(0.25, [0, 0.25, 0.5, 0.75]), (0.5, [0.25 * i for i in range(8)]), (1.0, [0, 0.5, 1, 1.5])],
)
def test_radii_reach_as_far_as_certificates_do(sigma, shown):
    [board] = boards(sigma, "all")
    found = [RADII[i] for i in forms.radii(board)]
    assert found[: len(shown)] == shown and len(found) <= 11
    assert any(row.accuracies[forms.radii(board)[-1]] for row in board.rows)


def test_latex_has_no_character_that_it_does_not_know(capsys):
    assert main(["leaderboard", "--latex"]) == 0
    text = capsys.readouterr().out
    assert text.count(r"\toprule") == 3
    assert text.isascii(), {c for c in text if not c.isascii()}
