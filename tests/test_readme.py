"""The README's map from the paper to the code names files and functions that exist."""

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAPER_MAP = README.split("## From the paper to the code")[1].split("Symbols,")[0]


def test_every_file_of_the_map_exists():
    links = re.findall(r"\]\((src/[^)]+)\)", README)
    assert len(links) >= 12
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_file_that_a_page_links_to_exists():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    links = [
        (page.name, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) >= 30
    folders = {page.name: page.parent for page in pages}
    assert [(page, link) for page, link in links if not (folders[page] / link).exists()] == []


def test_every_name_of_the_map_is_in_the_file_it_stands_behind():
    """In each cell, the names after a link are attributes of that link's module."""
    checked = 0
    for link, names in re.findall(r"\]\(src/([^)]+)\.py\)([^\[|]*)", PAPER_MAP):
        module = import_module(link.replace("/", "."))
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(module, name), f"{link}.py has no {name}"
            checked += 1
    assert checked >= 16


def test_the_layout_lists_every_package():
    layout = README.split("## Layout")[1].split("```")[1]
    packages = [path.name for path in (ROOT / "src/macer").iterdir() if path.is_dir()]
    listed = re.findall(r"^  (\w+)/", layout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(name for name in packages if name != "__pycache__")
