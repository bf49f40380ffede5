"""A hostile file is refused in one line, with little memory, and nothing else happens.

All files are read in another process: its memory can be measured, and it ends if it hangs.
"""

import contextlib
import faulthandler
import importlib
import io
import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from hostile_case import Case
from processes import surroundings

from macer.cli.app import main
from macer.system import progress
from macer.system.errors import Mistake

GROUPS = ("hostile_weights", "hostile_data", "hostile_texts")
CASES: dict[str, Case] = {
    name: case for group in GROUPS for name, case in importlib.import_module(group).CASES.items()
}
SECONDS = 60  # after which a file hangs, and the process ends
MEGABYTES = 500  # beyond what the process takes before; most take none
LIMIT = 16 << 30  # bytes of address space, so that a failure does not take the machine with it


def measure() -> None:
    """Meet every file and print what came of it."""
    faulthandler.enable()
    progress.SECONDS_TO_FIRST_SIGN = 2 * SECONDS  # a slow machine's line is no part of a refusal
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            place = Path(folder, re.sub(r"\W", "-", name))
            place.mkdir()
            os.chdir(place)
            case.make()
            sys.stdout.write(json.dumps({"name": name} | _met(case)) + "\n")
            sys.stdout.flush()
            os.chdir(folder)


def _met(case: Case) -> dict[str, Any]:
    before, held = _names(), _most_memory(anew=True)
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    line, code = _line(case)
    faulthandler.cancel_dump_traceback_later()
    return {
        "line": line[:5000],
        "code": code if isinstance(code, int) else 0,
        "megabytes": _most_memory() - held,
        "untouched": before == _names(),
    }


def _line(case: Case) -> tuple[str, object]:
    """What a refusal says, and the exit code; a traceback is no refusal."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stderr(out):
            code = main(shlex.split(case.meet)) if isinstance(case.meet, str) else case.meet()
        return out.getvalue().removesuffix("\n") or "nothing was refused", code
    except Mistake as mistake:
        return str(mistake), 2
    except Exception:
        return traceback.format_exc(), 1


def _names() -> list[tuple[str, int, int]]:
    """The files in the folder, links and pipes as such."""
    paths = sorted(Path().rglob("*"))
    states = [(path, path.lstat()) for path in paths[:1000]]
    return [(str(p), s.st_size, s.st_mtime_ns) for p, s in states if not stat.S_ISDIR(s.st_mode)]


def _most_memory(*, anew: bool = False) -> float:
    """The most megabytes that this process ever had; of now, if it begins anew."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1000


SCRIPT = "import sys; sys.path.append(sys.argv[1]); import test_hostile; test_hostile.measure()"


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent)],
        capture_output=True, text=True, check=False,
        env=surroundings(),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["name"]: line for line in lines}
    absent = [name for name in CASES if name not in found]
    assert not absent, f"{absent[0]} ended the process:\n{done.stderr[-3000:]}"
    return found


# refusal


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_refused_in_one_line(name: str, results: dict[str, Any]) -> None:
    result, words = results[name], CASES[name].words
    assert words in result["line"]
    assert "\n" not in result["line"] and len(result["line"]) < 2000
    assert result["code"] == 2
    assert result["untouched"], "a file was made or changed"
    assert result["megabytes"] < MEGABYTES


def test_there_are_many_hostile_files() -> None:
    assert len(CASES) >= 150
    assert sum(isinstance(case.meet, str) for case in CASES.values()) >= 12
