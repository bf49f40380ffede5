"""A user's own functions, named as package.module:function."""

import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from macer.mistake import Mistake


def import_function(name: str) -> Callable[..., object]:
    """The function that package.module:function names; the current folder is searched first."""
    module_name, _, function_name = name.partition(":")
    module = _import(module_name)
    function: object = getattr(module, function_name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise Mistake(
            f"no function {function_name!r} in module {module_name!r}"
            f"{nearest(function_name, functions)}"
        )
    return function


def source_of(name: str) -> Path | None:
    """The file that holds the module of package.module:function, if it is Python."""
    file = _import(name.partition(":")[0]).__file__
    return Path(file) if file and file.endswith(".py") else None


def names_a_function(name: str) -> bool:
    """Whether a name has the form package.module:function."""
    module_name, colon, function_name = name.partition(":")
    return bool(colon) and all(
        part.isidentifier() for part in (*module_name.split("."), function_name)
    )


def nearest(word: str, words: Iterable[str]) -> str:
    """A question to the one who mistyped a word, or nothing."""
    matches = difflib.get_close_matches(word, words, n=1)
    return f", did you mean {matches[0]!r}?" if matches else ""


def _import(module_name: str) -> ModuleType:
    try:
        with _current_folder_importable():
            return importlib.import_module(module_name)
    except (ImportError, RuntimeError, SyntaxError) as error:
        # RuntimeError: what torchvision raises beside a torch it was not built for.
        raise Mistake(
            f"cannot import module {module_name!r}: {first_line(error)}; "
            "install it or run in the folder that holds it"
        ) from error


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Put the current folder first, where `python -m macer` has it and the command has not."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the module itself may have removed it
            sys.path.remove(folder)


def first_line(error: Exception) -> str:
    """What an exception says, in one line without a full stop."""
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
