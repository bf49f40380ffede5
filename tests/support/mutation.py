"""Apply a seeded bug to a copy of the package, and run the tests that must notice it."""

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 300  # seconds for the tests of one bug; the slowest need about 30

# Processes that have imported what takes long to import, and nothing of the package.
FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(
    [
        *("torch", "torch.fx", "torch.distributed.nn", "safetensors.torch", "triton.language"),
        *("scipy.stats", "scipy.signal", "scipy.optimize", "mpmath", "PIL.Image"),
        *("cyclopts", "docstring_parser", "rich.progress", "rich.table", "rich.live", "jinja2"),
        *("matplotlib.figure", "matplotlib.backends.backend_agg", "hypothesis", "pytest"),
        *("fastapi.testclient", "uvicorn"),
    ]
)

LIGHT = ["-p", "no:cacheprovider", "-p", "no:anyio"]  # anyio's plugin takes half a second
IMPORTED = ["-W", "ignore:Module already imported"]  # what pytest says of plugins in such a process

NOTICED, SURVIVES, NO_END = "noticed ", "SURVIVES", "NO END  "


class Mutant(NamedTuple):
    file: str  # under src/macer
    right: str  # stands there once
    wrong: str
    tests: str  # the files that must notice, or single tests as FILE::NAME
    slow: bool = False  # only the tests marked slow must notice, not the others
    interpreted: bool = False  # by Triton's interpreter, since the bug is in a GPU's kernel


def outcome(mutant: Mutant) -> str:
    """Whether the tests notice the bug."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        # The data files are many megabytes, and no bug is in them.
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("assets"))
        (copy / "macer/assets").symlink_to(ROOT / "src/macer/assets", target_is_directory=True)
        path = copy / "macer" / mutant.file
        text = path.read_text(encoding="utf-8")
        assert text.count(mutant.right) == 1, f"{mutant.file} must hold once: {mutant.right}"
        path.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        code, output = _tested(mutant, copy)
    if code is None:
        return NO_END
    assert code in (0, 1), output[-2000:]
    return NOTICED if code else SURVIVES


def _tested(mutant: Mutant, source: Path) -> tuple[int | None, str]:
    """The exit code of the tests of that source, None if they do not end; and what they say."""
    log = source.parent / "output"
    child = FRESH.Process(target=_test, args=(mutant, source, log))
    child.start()
    child.join(LIMIT)
    if child.is_alive():
        os.killpg(child.pid, signal.SIGKILL)  # and all that the tests have started
        child.join()
        return None, ""
    return child.exitcode, log.read_text(encoding="utf-8", errors="replace")


def _test(mutant: Mutant, source: Path, log: Path) -> None:
    """Run the tests of that source in a process of its own, and end with their exit code."""
    os.setsid()
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(ROOT)
    path = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.path.insert(0, str(source))
    marked = ["-m", "slow" if mutant.slow else "not slow"]
    tests = [str(ROOT / "tests" / name) for name in mutant.tests.split()]
    code = 99  # the tests did not run
    try:
        gc.freeze()  # pytest collects garbage twice, and there is none in what was imported before
        code = pytest.main(["-x", "-n0", *LIGHT, *IMPORTED, *marked, *tests])
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)  # whatever the tests have left running


def main(bugs: Mapping[str, Mutant], names: Sequence[str], part: str = "") -> int:
    """Try the bugs, two at a time, and say which were noticed.

    Args:
        part: K/N, every N-th bug from number K mod N on; by default all of them.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # safe to fork
    interprets = os.environ.get("TRITON_INTERPRET") == "1"
    known = {name: bug for name, bug in bugs.items() if bug.interpreted == interprets}
    if unknown := set(names) - known.keys():
        sys.exit(f"no such bug: {', '.join(unknown)}; those in kernels need TRITON_INTERPRET=1")
    number, parts = map(int, part.split("/")) if part else (0, 1)
    chosen = {name: known[name] for name in names or list(known)[number % parts :: parts]}
    outcomes = []
    with ThreadPoolExecutor(2) as pool:
        for name, result in zip(chosen, pool.map(outcome, chosen.values()), strict=True):
            sys.stdout.write(f"{result}  {name}\n")
            sys.stdout.flush()
            outcomes.append(result)
    noticed = outcomes.count(NOTICED)
    sys.stdout.write(f"{noticed} of {len(chosen)} seeded bugs noticed\n")
    return 0 if noticed == len(chosen) else 1
