"""What docstrings and comments speak of exists: arguments, names and modules."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/macer"
OTHERS = {"core.py", "sha256sum"}  # code of [Cohen+19], and a program

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def explained(docstring: str) -> set[str]:
    """The arguments below Args: or Parameters."""
    names: set[str] = set()
    for part in re.findall(r"^Args:\n((?: {4}.*\n?|\n)+)", docstring, re.MULTILINE):
        entries = re.findall(r"^ {4}([a-z_]\w*(?:, [a-z_]\w*)*):", part, re.MULTILINE)
        names.update(name for entry in entries for name in entry.split(", "))
    for part in re.findall(r"^Parameters\n-+\n((?:.*\n?)+)", docstring, re.MULTILINE):
        names.update(re.findall(r"^([a-z_]\w*)$", part, re.MULTILINE))
    return names


def arguments(node: ast.AST) -> set[str]:
    """The arguments of a function; of a class its fields and the arguments of __init__."""
    match node:
        case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
            listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            return {argument.arg for argument in listed if argument}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.ClassDef(body=body):
            fields = (ast.AnnAssign, ast.FunctionDef)
            made = [part for part in body if getattr(part, "name", "__init__") == "__init__"]
            return set().union(*(arguments(part) for part in made if isinstance(part, fields)))
    return set()


def unknown_arguments(text: str) -> list[str]:
    """The arguments that docstrings of a module explain and that are none."""
    return [
        f"{node.name}: {name}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Documented)
        for name in sorted(explained(ast.get_docstring(node) or "") - arguments(node))
    ]


def names_in_backticks(text: str) -> set[str]:
    """The last part of each name that a docstring or a comment of a module has in backticks."""
    nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, Documented | ast.Module))
    said = [*(ast.get_docstring(node) or "" for node in nodes), *re.findall(r"#.*", text)]
    found = re.findall(r"`([A-Za-z_][\w.]+)(?:\(.*?\))?`", "\n".join(said))
    return {name.rpartition(".")[2] for name in found}


SOURCES = {
    str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")
}


# law


@pytest.mark.medium
def test_every_argument_that_is_explained_is_one():
    unknown = {file: names for file, text in SOURCES.items() if (names := unknown_arguments(text))}
    assert unknown == {}


@pytest.mark.medium
def test_every_name_in_backticks_is_in_the_code():
    code = "".join(re.sub(r'"""(?:.|\n)*?"""|#.*', "", text) for text in SOURCES.values())
    known = {*re.findall(r"\w+", code), *OTHERS}
    named = {file: names_in_backticks(text) for file, text in SOURCES.items()}
    assert sum(map(len, named.values())) > 100
    assert {file: names - known for file, names in named.items() if names - known} == {}


def test_every_module_that_is_named_exists():
    places = [
        ROOT.glob("*.py"),
        *((ROOT / name).rglob("*.py") for name in ("src", "docs", "tests")),
    ]
    known = {*(path.name for place in places for path in place), *OTHERS}
    named = {file: set(re.findall(r"\b\w+\.py\b", text)) for file, text in SOURCES.items()}
    assert {file: names - known for file, names in named.items() if names - known} == {}


# known value

RENAMED = """
def f(x, *, n):
    '''Do.

    Args:
        x, m: two; n: of them
        n: a number: one
    '''

def g(run):
    '''Do.

    Parameters
    ----------
    runs
        Of them.
    '''

class A:
    '''A.

    Args:
        a: one
        b: two
    '''

    a: int
"""


def test_an_argument_that_was_renamed_is_seen():
    assert unknown_arguments(RENAMED) == ["f: m", "g: runs", "A: b"]
