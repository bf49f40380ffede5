"""The environment of processes that tests start."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
SCRIPTS = TESTS.parents[1] / "docs/scripts"


def surroundings() -> dict[str, str]:
    """Our environment, with one thread, and with what tests import and the source under test."""
    path = [str(TESTS), str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}


def torchrun(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Two processes on this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True, text=True, timeout=240, check=False, cwd=cwd, env=surroundings(),
    )  # fmt: skip
