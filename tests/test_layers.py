"""Imports run one way, from the command line down to the kernels."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src/macer"

# A package imports only from lines below its own; packages on one line are strangers.
LAYERS = """
cli
server
experiments
audit reporting
certification training
losses
attacks runs
smoothing
models
data recipes
system
kernels
"""
LEVEL = {name: level for level, line in enumerate(LAYERS.split("\n")) for name in line.split()}
Function = (ast.FunctionDef, ast.AsyncFunctionDef)
PUBLIC = LEVEL["server"]  # of `from macer import NAME`: a name of any layer
TOP = {"__init__", "__main__"}  # they give out names of every layer


class Import(NamedTuple):
    file: str
    line: int
    module: str  # as written: macer.losses.batch


def imports_of(file: Path, text: str) -> Iterator[Import]:
    """Every module of macer that a file imports: lazily, for types or by name too."""
    where = str(file.relative_to(PACKAGE))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module="macer", names=names):
                modules = [f"macer.{alias.name}" for alias in names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.Call(args=[ast.Constant(value=str(module)), *_]) if _imports(node.func):
                modules = [module]
            case _:
                continue
        for module in modules:
            if module.split(".")[0] == "macer":
                yield Import(where, node.lineno, module)


def _imports(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def package_of(path: str) -> str:
    """The package, or top-level module, that a file or a dotted module belongs to."""
    return path.removeprefix("macer.").replace("/", ".").removesuffix(".py").split(".")[0]


def upward(file: Path, text: str) -> list[Import]:
    """The imports of a file from its own level or above."""
    home = package_of(str(file.relative_to(PACKAGE)))
    if home in TOP:
        return []
    return [
        found
        for found in imports_of(file, text)
        if (other := package_of(found.module)) != home
        and not other.startswith("__")  # __version__
        and LEVEL.get(other, PUBLIC) <= LEVEL[home]
    ]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


# law


@pytest.mark.medium
def test_imports_run_one_way():
    wrong = [found for file in sources() for found in upward(file, file.read_text("utf-8"))]
    assert wrong == []


@pytest.mark.medium
def test_no_import_is_relative_so_that_each_names_its_package():
    relative = [
        str(file.relative_to(PACKAGE))
        for file in sources()
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_only_kernels_know_triton():
    knowing = {
        package_of(str(file.relative_to(PACKAGE)))
        for file in sources()
        if "triton" in file.read_text("utf-8").lower()
    }
    assert knowing == {"kernels"}


def test_kernels_import_nothing_of_macer_but_kernels():
    wrong = [
        found
        for file in (PACKAGE / "kernels").glob("*.py")
        for found in imports_of(file, file.read_text("utf-8"))
        if package_of(found.module) != "kernels"
    ]
    assert wrong == []


def test_every_package_says_its_purpose_in_one_line():
    for init in sorted(PACKAGE.glob("*/__init__.py")):
        purpose = ast.get_docstring(ast.parse(init.read_text("utf-8")))
        assert purpose, init
        assert len(purpose.split("\n")[0]) <= 100, init


def test_a_reader_of_the_package_finds_few_names():
    names = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert len(names) <= 20
    assert {package_of(name) for name in names if name.endswith(".py")} == TOP


def test_no_module_has_more_than_350_lines():
    long = {
        str(file.relative_to(PACKAGE)): lines
        for file in sources()
        if (lines := len(file.read_text("utf-8").splitlines())) > 350
    }
    assert long == {}


@pytest.mark.medium
def test_no_function_has_more_than_60_lines_of_code():
    long = []
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, Function) and lines_of_code(node) > 60:
                long.append(f"{file.relative_to(PACKAGE)}:{node.name}")
    assert long == []


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From its name to its end, without its docstring."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


# known value: the test of layers sees an import that is turned upward, however it is written


@pytest.mark.parametrize(
    "text",
    [
        "from macer.training.step import Trainer",
        "from macer import training",
        "import macer.training.loop",
        "def f():\n    from macer.training.loop import train",
        "if TYPE_CHECKING:\n    from macer.training.step import Trainer",
        "def f():\n    importlib.import_module('macer.training.loop').train()",
        "def f():\n    __import__('macer.training')",
        "from macer import train",  # a public name
        "from macer.attacks.images import pgd",  # a stranger on one's own line
    ],
)
def test_an_import_turned_upward_is_seen(text):
    assert len(upward(PACKAGE / "runs/run.py", text)) == 1
    assert upward(PACKAGE / "cli/train.py", text) == []
