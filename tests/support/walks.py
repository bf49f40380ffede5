"""Which functions of macer a piece of work calls, and from where."""

import importlib
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import macer

SOURCE = str(Path(macer.__file__).parent) + "/"


class Call(NamedTuple):
    """A function of macer that was called by another one, other packages between them left out."""

    file: str  # within src/macer
    name: str
    caller: str | None  # the calling function's file; None where no function of macer calls
    path: Any  # the function's first argument where that is called path

    @property
    def packages(self) -> tuple[str | None, str]:
        """The packages of the caller and of the called."""
        return self.caller and self.caller.partition("/")[0], self.file.partition("/")[0]


def import_everything() -> None:
    """Import all modules, so that importing is no part of a walk; those of Triton may be absent."""
    for module in pkgutil.walk_packages(macer.__path__, "macer."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton":
                    raise


def _is_ours(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(SOURCE) and code.co_name != "<module>"


def _caller(frame: FrameType) -> str | None:
    back = frame.f_back
    while back is not None and not _is_ours(back):
        back = back.f_back
    return back and back.f_code.co_filename.removeprefix(SOURCE)


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The calls of macer's functions while it is open, in all threads."""
    calls: list[Call] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _is_ours(frame):
            file, path = frame.f_code.co_filename, frame.f_locals.get("path")
            calls.append(
                Call(file.removeprefix(SOURCE), frame.f_code.co_name, _caller(frame), path)
            )

    before = sys.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def walk(work: Callable[[], object]) -> list[Call]:
    """The calls of a piece of work."""
    import_everything()
    with recorded() as calls:
        work()
    return calls
