"""README and docs: their files and functions exist, commands parse, and recipes load."""

import ast
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from pages import ROOT, blocks

from macer.cli.app import command_line
from macer.cli.loss_flags import train_command
from macer.losses import LOSSES, completed
from macer.recipes import TrainRecipe

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").rglob("*.md"))
# The log keeps commands of versions past; json.md has tests of its own.
PAGES = [
    ROOT / "README.md",
    *(page for page in DOCS if page.parent.name != "log" and page.name != "json.md"),
]
PAPER_MAP = README.split("## From the paper to the code")[1].split("## Layout")[0]


def test_every_file_of_the_map_exists():
    links = re.findall(r"\]\((src/[^)]+)\)", README)
    assert len(links) >= 12
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_file_that_a_page_links_to_exists():
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)|<img src=\"([^\":]+)\"")
    links = [
        (page, found[1] or found[2])
        for page in [ROOT / "README.md", *DOCS]
        for found in link.finditer(page.read_text(encoding="utf-8"))
    ]
    assert len(links) >= 150
    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []


def test_every_name_of_the_map_is_in_the_file_it_stands_behind():
    """In each cell, the names after a link are attributes of that link's module."""
    checked = 0
    for link, names in re.findall(r"\]\(src/([^)]+)\.py\)([^\[|]*)", PAPER_MAP):
        module = import_module(link.replace("/", "."))
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(module, name), f"{link}.py has no {name}"
            checked += 1
    assert checked >= 16


def test_the_readme_is_short():
    """Without the map and the layout; what is longer belongs to a page of docs/."""
    layout = README.split("## Layout")[1].split("```")[1]
    assert len(README.replace(PAPER_MAP, "").replace(layout, "").split()) <= 750


def test_the_layout_lists_every_package():
    layout = README.split("## Layout")[1].split("```")[1]
    packages = [path.name for path in (ROOT / "src/macer").iterdir() if path.is_dir()]
    listed = re.findall(r"^  (\w+)/", layout, flags=re.MULTILINE)
    assert sorted(listed) == sorted(name for name in packages if name != "__pycache__")


def test_the_layout_says_of_each_package_what_its_docstring_says():
    layout = README.split("## Layout")[1].split("```")[1]
    for name, purpose in re.findall(r"^  (\w+)/ +(.*)$", layout, flags=re.MULTILINE):
        init = ROOT / "src/macer" / name / "__init__.py"
        if init.exists():  # assets/ is no package of Python
            docstring = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
            assert f"{purpose}.".lower() == docstring.split("\n")[0].lower(), name


def steps() -> list[str]:
    """Every command of the files for services that build software."""
    files = sorted((ROOT / "docs/guide").glob("*.yml"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return [step[1] for line in lines if (step := re.match(r" +- (?:run: )?(macer .*)", line))]


def test_the_files_for_ci_certify_verify_and_gate():
    assert [step.split()[1] for step in steps()] == 2 * ["certify", "verify", "gate"]


def commands() -> list[str]:
    """Every command of README and docs, without its comment; own-loss.md has a test of its own."""
    pages = [page for page in PAGES if page.name != "own-loss.md"]
    lines = [line for page in pages for text in blocks(page, "") for line in text.splitlines()]
    parts = [part.strip() for line in lines for part in line.split(" #")[0].split(" ; ")]
    return [part for part in parts if re.match(r"(torchrun .*-- )?macer \w", part)]


def test_commands_are_found():
    assert len(commands()) >= 80


@pytest.mark.parametrize("command", dict.fromkeys([*commands(), *steps()]))
def test_every_command_parses(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages = {
        "parts.toml": "review.md",
        "signs.toml": "traffic-signs.md",
        "photographs.toml": "photographs.md",
    }
    for file, page in pages.items():
        [recipe] = blocks(ROOT / "docs/guide" / page, "toml")
        Path(file).write_text(recipe, "utf-8")
    words = shlex.split(command.split("macer ", 1)[1])
    app = command_line(train_command(words[1:]) if words[0] == "train" else None)
    app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_recipe_of_a_page_is_one(page):
    for text in blocks(page, "toml"):
        recipe = TrainRecipe(**tomllib.loads(text))
        assert len(recipe.loss) > 0 or recipe.loss.name == "gaussian"  # which has no settings
        if recipe.loss.name in LOSSES:
            completed(recipe)
