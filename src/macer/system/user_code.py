"""A user's own functions, named as package.module:function.

A name that the user types or passes from Python is imported. A name that comes from a file is
imported only if the user admitted its module: `check_admitted` runs before every such import.
"""

import contextlib
import difflib
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from macer.system.errors import Mistake
from macer.system.files import sha256_of_file

OwnModule = dict[str, str]  # keys module, folder and sha256: where to find the user's code again


def check_admitted(name: str, code: Collection[str], *, source: object) -> None:
    """Refuse a function that a file names unless its module is in `code`; import nothing.

    Args:
        source: the file that names the function, for the message.
    """
    if names_a_function(name) and module_of(name) not in code:
        raise Mistake(
            f"{source} names code of its own, {name}; if you trust the module {module_of(name)}, "
            f"add --code {module_of(name)}"
        )


def module_of(name: str) -> str:
    """The module of package.module:function."""
    return name.partition(":")[0]


def import_function(name: str, folder: str | None = None) -> Callable[..., object]:
    """The function that package.module:function names.

    Args:
        folder: where the module must be; by default the current folder is searched first.
    """
    module_name, _, function_name = name.partition(":")
    module = _import(module_name, folder)
    function: object = getattr(module, function_name, None)
    if not callable(function):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise Mistake(
            f"no function {function_name!r} in module {module_name!r}"
            f"{nearest(function_name, functions)}"
        )
    return function


def source_of(name: str) -> Path | None:
    """The file of the module of package.module:function, if it is Python source."""
    file = _file_of(_import(module_of(name)))
    return Path(file) if file and file.endswith(".py") else None


def _file_of(module: ModuleType) -> str | None:
    """A module's file; built-in modules and those of an interactive session have none."""
    return getattr(module, "__file__", None)


def own_modules(*names: str) -> list[OwnModule]:
    """The modules of all names of the form package.module:function, each once."""
    modules = dict.fromkeys(module_of(name) for name in names if names_a_function(name))
    return [_own_module(module) for module in modules]


def _own_module(name: str) -> OwnModule:
    """A module, its folder of import and its file's SHA-256; both are empty without a file."""
    file, top = _file_of(_import(name)), _import(name.partition(".")[0])
    path = next(iter(getattr(top, "__path__", [])), _file_of(top))  # a package's folder, or a file
    return {
        "module": name,
        "folder": str(Path(path).resolve().parent) if path else "",
        "sha256": sha256_of_file(Path(file)) if file else "",
    }


def names_a_function(name: str) -> bool:
    """Whether a name has the form package.module:function."""
    module_name, colon, function_name = name.partition(":")
    return bool(colon) and all(
        part.isidentifier() for part in (*module_name.split("."), function_name)
    )


def nearest(word: str, words: Iterable[str]) -> str:
    """The question whether another word was meant, for the end of a message; may be empty."""
    matches = difflib.get_close_matches(word, words, n=1)
    return f", did you mean {matches[0]!r}?" if matches else ""


def _import(module_name: str, folder: str | None = None) -> ModuleType:
    if folder is not None:
        _check_in_folder(module_name, folder)
    try:
        with _importable(str(Path.cwd()) if folder is None else folder):
            return importlib.import_module(module_name)
    except (ImportError, RuntimeError, SyntaxError) as error:
        # torchvision raises RuntimeError if it was built for another torch.
        raise Mistake(
            f"cannot import module {module_name!r}: {first_line(error)}; "
            "install it or run in the folder that holds it"
        ) from error


def _check_in_folder(module_name: str, folder: str) -> None:
    """Refuse a module that is not in its folder and would be imported from elsewhere."""
    top = module_name.partition(".")[0]
    if top in sys.modules or (folder and PathFinder.find_spec(top, [folder])):
        return
    raise Mistake(
        f"no module {module_name!r} in {folder or 'any folder'}, where it was; put it there, or "
        f"add --code {module_name} to take it from the current folder"
    )


@contextlib.contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Search a folder first; the command `macer` does not search the current one itself."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the module itself may have removed it
            sys.path.remove(folder)


def first_line(error: Exception) -> str:
    """The first line of an exception's message, without a full stop."""
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
