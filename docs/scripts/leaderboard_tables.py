"""The leaderboard's page as the site has it: a click or Enter on a title sorts the rows.

A method's name leads to where its log is from; our rows have a ground of their own. Errors stand
below their figures, and networks below the methods, so that a table fits a window of 1280 pixels.
"""

import shutil
from pathlib import Path

from jinja2 import Template

import macer.reporting
from macer.reporting import leaderboard_forms as forms
from macer.reporting.leaderboard import Board, boards
from macer.reporting.leaderboard_page import section
from macer.system.text import NO_BREAK

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
{%- if loop.first %} data-sort="text"
{%- elif loop.index == 2 %} data-sort="rank" aria-sort="ascending"{% endif %}>{{ title }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for line in rows %}
{% set row = line.row %}
<tr{% if row.load %} class="ours"{% endif %}>
<th scope="row" data-value="{{ row.name }}">
<a href="{{ "#sources" if row.load else row.source }}">{{ name_text(row) }}</a>
<small>{{ row.network }}</small>
</th>
<td data-value="{{ row.rank }}">{{ row.rank }}</td>
{% for text, below, value in line.cells %}
<td data-value="{{ value }}">{{ text }}{% if below %}<small>{{ below }}</small>{% endif %}</td>
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
    shown = section(board)
    header = [title.replace("− ", f"−{NO_BREAK}") for title in shown["header"]]
    return TABLE.render(header=header, rows=shown["rows"], name_text=forms.name_text)


def write_files(folder: Path) -> None:
    """Write what the page loads beside it, into the folder of the site."""
    for name in FILES:
        shutil.copy(Path(macer.reporting.__path__[0]) / name, (folder / PLACE).parent)
