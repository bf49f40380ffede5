"""Every kernel is run by Triton's interpreter: none is added without a test that CI runs."""

import ast
import subprocess
import sys
from pathlib import Path

import mutation
from interpreted import needs_interpreter
from launch_log import LOG
from mutation import SURVIVES, Mutant
from processes import surroundings

from macer import kernels

pytestmark = needs_interpreter


def jit_functions() -> set[str]:
    """Every function of kernels/ that is decorated with triton.jit, as module.name."""
    return {
        f"{file.stem}.{node.name}"
        for file in Path(kernels.__file__).parent.glob("*.py")
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and "triton.jit" in [ast.unparse(decorator) for decorator in node.decorator_list]
    }


def test_every_jit_function_is_run_by_the_tests_of_its_file(tmp_path):
    log = tmp_path / "launches"
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "launch_log", "-p", "no:cacheprovider"]
    files = {function.partition(".")[0] for function in jit_functions()}
    tests = [str(Path(__file__).parent / f"test_{name}.py") for name in sorted(files)]
    done = subprocess.run(
        [*command, *tests], env=surroundings() | {LOG: str(log)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr  # a file without tests: in the latter
    assert len(jit_functions()) > 10
    assert set(log.read_text().split()) == jit_functions()


def test_a_change_that_is_no_bug_survives():
    """Else every bug would count as noticed where the interpreter cannot even begin."""
    for file in ("kernels/test_pooling.py", "kernels/test_interpreter.py::" + LAW):
        change = Mutant("kernels/pooling.py", HEAD, f"{HEAD}  # the same", file, interpreted=True)
        assert mutation.outcome(change) == SURVIVES, file


HEAD = "import triton.language as tl"
LAW = test_every_jit_function_is_run_by_the_tests_of_its_file.__name__
