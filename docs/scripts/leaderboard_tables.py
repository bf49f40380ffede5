"""The leaderboard's page as the site has it: a click or Enter on a title sorts the rows.

A method's name leads to where its log is from; our rows have a ground of their own.
"""

import shutil
from pathlib import Path

from jinja2 import Template

import macer.reporting
from macer.reporting import leaderboard_forms as forms
from macer.reporting.leaderboard import Board, boards
from macer.reporting.leaderboard_page import sort_values

PLACE = "results/leaderboard.md"
FILES = ("leaderboard.css", "leaderboard.js")  # of the page of `macer leaderboard --html`
LOADED = """
<link rel="stylesheet" href="leaderboard.css">
<script src="leaderboard.js"></script>
"""
TABLE = Template(
    """\
<table data-sortable>
<thead><tr>
{% for title in header %}
<th scope="col"
{%- if loop.first or loop.last %} data-sort="text"
{%- elif loop.index == 2 %} data-sort="rank" aria-sort="ascending"{% endif %}>{{ title }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for rank, row in rows %}
<tr{% if rank.load %} class="ours"{% endif %}>
{% for text, value in row %}
{% if loop.first %}
<th scope="row" data-value="{{ value }}">
<a href="{{ "#sources" if rank.load else rank.source }}">{{ text }}</a>
</th>
{% else %}
<td data-value="{{ value }}">{{ text }}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>
""",
    autoescape=True,
    trim_blocks=True,
)


def sortable(page: str) -> str:
    """The page with tables of HTML, which can be sorted, for those of Markdown."""
    for board in boards():
        if forms.table(board) not in page:
            raise SystemExit(
                f"docs/{PLACE} must have the table of {forms.title(board)!r}; make it anew: "
                f"macer leaderboard --images both --markdown > docs/{PLACE}"
            )
        page = page.replace(forms.table(board), _table(board))
    return page + LOADED


def _table(board: Board) -> str:
    grid = forms.whole(board)
    rows = [
        (row, list(zip(texts, sort_values(row, board), strict=True)))
        for row, texts in zip(board.rows, grid.rows, strict=True)
    ]
    return TABLE.render(header=grid.header, rows=rows)


def write_files(folder: Path) -> None:
    """Write what the page loads beside it, into the folder of the site."""
    for name in FILES:
        shutil.copy(Path(macer.reporting.__path__[0]) / name, (folder / PLACE).parent)
