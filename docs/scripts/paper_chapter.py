"""The chapter of the documentation on the paper: every table and figure, ours beside its rows."""

import re
from pathlib import Path

from result_tables import table

from macer.experiments import paper_tables
from macer.experiments.paper import Item, item_names, read_item
from macer.experiments.paper_figures import plot
from macer.experiments.paper_runs import find

NO_RUNS = Path("no runs")  # a page must not depend on what lies in runs/
PAPER_PICTURES = "pictures/paper"
WIDE = "what differs"
WIDE_HEAD = f'<span class="wide">{WIDE}</span>'


def paper() -> str:
    """Every table and figure of the paper, with what comes with macer beside its rows."""
    items = "\n".join(_paper_item(read_item(name)) for name in item_names())
    return f'<div class="paper" markdown>\n\n{items}\n</div>\n'


def _paper_item(item: Item) -> str:
    entries = find(item, NO_RUNS)
    number = item.name.replace("-", " ").capitalize()
    text = f"## {number}: {item.title}\n\n"
    if item.panels:
        text += f"![{number}: {item.title}](../{PAPER_PICTURES}/{item.name}.svg)\n\n"
    header, rows = paper_tables.cells(item, entries)
    # What is read first stands where a narrow window shows it.
    first = [
        name
        for name in ("model", "σ", "data set", "of", "ACR", "runner-up †", WIDE)
        if name in header
    ]
    order = [header.index(name) for name in [*first, *(h for h in header if h not in first)]]
    kept = [[row[i] for i in order] for row in rows]
    text += table([WIDE_HEAD if header[i] == WIDE else header[i] for i in order], kept) + "\n"
    notes = [re.sub(r"([\\*_\[])", r"\\\1", note) for note in paper_tables.notes(item, entries)]
    return text + "".join(f"- {note}\n" for note in notes) + f"\n`macer paper {item.name}`\n"


def draw_paper(folder: Path) -> None:
    """Draw every figure of the paper into the folder of the site."""
    (folder / PAPER_PICTURES).mkdir(parents=True)
    for item in map(read_item, item_names()):
        if item.panels:
            plot(item, find(item, NO_RUNS), folder / PAPER_PICTURES / f"{item.name}.svg")
