"""The leaderboard's page: self-contained, accessible, and the figures of the boards."""

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from macer.cli.app import main
from macer.reporting.leaderboard import boards, other_leagues
from macer.reporting.leaderboard_forms import where_text
from macer.reporting.leaderboard_page import write_leaderboard
from macer.system.errors import Mistake


class Page(HTMLParser):
    """The tables' rows as lists of (text, value to sort by), and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[tuple[str, str | None]]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append(("", dict(attrs).get("data-value")))

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            text, value = self.rows[-1][-1]
            self.rows[-1][-1] = (text + data, value)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("page") / "board.html"
    write_leaderboard(boards(), other_leagues(), file)
    return file.read_text("utf-8")


# law


def test_the_rows_are_those_of_the_boards_in_their_order(text):
    rows = [row for row in Page(text).rows if row[0][1] is not None]
    told = [row for board in boards() for row in board.rows]
    assert [cells[0][1] for cells in rows] == [row.name for row in told]
    for cells, row in zip(rows, told, strict=True):
        assert [cells[1][1], cells[2][1]] == [str(row.rank), str(row.acr)]
        assert cells[2][0].startswith(f"{row.acr:.3f}")
        assert cells[-1][0].startswith(where_text(row))
        assert cells[-1][1] == (row.load or row.source)


def test_every_row_has_a_cell_for_every_title_with_a_value_to_sort_by(text):
    width = 0
    for row in Page(text).rows:
        if row[0][1] is None:
            width = len(row)
        else:
            assert len(row) == width
            assert all(value is not None for _, value in row)


def test_titles_are_headers_and_regions_can_be_reached_by_keyboard(text):
    page = Page(text)
    headers = [given for tag, given in page.attributes if tag == "th"]
    assert all(given.get("scope") in ("col", "row") for given in headers)
    regions = [given for tag, given in page.attributes if given.get("role") == "region"]
    assert len(regions) == 7
    assert all(given["tabindex"] == "0" and given["aria-label"] for given in regions)


def test_the_page_asks_nothing_of_the_network_and_runs_its_own_script_alone(text):
    page = Page(text)
    loading = {"src", "srcset", "action", "data"}
    assert [tag for tag, given in page.attributes if loading & given.keys() or tag == "link"] == []
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_without_the_script_the_page_has_no_buttons(text):
    assert not [tag for tag, _ in Page(text).attributes if tag == "button"]


# refusal


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"^path of a page must end in .html or .htm, got "):
        write_leaderboard(boards(0.5), other_leagues(), tmp_path / "a.txt")


def test_the_command_says_where_the_page_is(tmp_path, capsys):
    file = Path(tmp_path, "a.html")
    assert main(["leaderboard", "--sigma", "0.5", "--csv", "--html", str(file)]) == 0
    out, err = capsys.readouterr()
    assert file.is_file() and f"page: {file}" in err and "page" not in out
