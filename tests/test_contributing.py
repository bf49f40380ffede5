"""CONTRIBUTING.md names files, tables and commands that exist, and quotes the code as it is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS_TEST = ROOT / "tests/test_layers.py"
DOTALL = re.DOTALL | re.MULTILINE
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PROSE = re.sub(r"```.*?```", "", TEXT, flags=DOTALL)
CODE = re.findall(r"`([^`\n]+)`", PROSE)
PATH = re.compile(r"[\w.-]+/[\w./-]*|[\w-]+\.(py|md|toml|txt)|Makefile|\.git[\w-]+")
PLACEHOLDER = re.compile(r"[^/]*(NAME|OPERATION|PACKAGE).*")

# A block of code after "As in `FILE`:" stands in that file.
QUOTED = re.findall(r"[Aa]s in `([^`]+)`:\n\n *```\w+\n(.*?)```", TEXT, flags=DOTALL)
NAMED_IN = re.findall(r"`(\w+)` in `([^`]+\.py)`", PROSE)  # `BOUNDS` in `FILE`
NAMED_BEFORE = re.findall(r"`(\w+)` \(`([^`]+\.py)`\)", PROSE)  # `check_admitted` (`FILE`)


def paths() -> list[str]:
    """Every path that is named, up to the first folder or file that is to be added."""
    in_code = [text for text in CODE if PATH.fullmatch(text)]
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    return [PLACEHOLDER.sub("", path) for path in [*in_code, *links]]


def exists(path: str) -> bool:
    """Whether a path is one of the repository, or of the package."""
    return (ROOT / path).exists() or (ROOT / "src/macer" / path).exists()


def names_of(file: str) -> set[str]:
    """What a module defines or imports at its top level."""
    names = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names


def test_every_path_exists():
    assert len(paths()) >= 40
    assert [path for path in paths() if not exists(path)] == []


def test_every_name_is_in_the_file_it_is_said_to_be_in():
    named = NAMED_IN + NAMED_BEFORE
    assert {"LOSSES", "BOUNDS", "DATASETS", "MODELS", "SOURCES", "MUTANTS"} <= dict(named).keys()
    assert [name for name, file in named if name not in names_of(file)] == []


def test_every_table_has_its_file_named():
    tables = {text for text in CODE if re.fullmatch(r"[A-Z]+", text)}
    assert tables <= dict(NAMED_IN).keys()


@pytest.mark.parametrize(("file", "code"), QUOTED)
def test_code_is_quoted_as_it_is(file, code):
    source = [line.strip() for line in (ROOT / file).read_text("utf-8").splitlines()]
    assert [line for line in code.splitlines() if line.strip() not in source] == []


def test_each_kind_of_addition_with_a_table_has_an_example():
    assert len(QUOTED) >= 7


def test_every_target_of_make_exists():
    targets = {text.removeprefix("make ") for text in CODE if re.fullmatch("make [a-z]+", text)}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert len(targets) >= 6
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_the_layers_are_those_that_are_checked():
    [layers] = re.findall(r'^LAYERS = """(.*?)"""', LAYERS_TEST.read_text("utf-8"), DOTALL)
    assert f"```{layers}```" in TEXT


def test_every_package_of_tests_is_one_of_the_source_or_explained():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    packages = {path.name for path in (ROOT / "src/macer").iterdir() if path.is_dir()}
    others = folders - packages - {"__pycache__"}
    assert [name for name in others if f"`tests/{name}/`" not in TEXT] == []
