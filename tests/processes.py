"""The surroundings of processes that tests start."""

import os
from pathlib import Path

TESTS = Path(__file__).parent


def surroundings() -> dict[str, str]:
    """Ours, with one thread and with the tests' own modules: the source is the one under test."""
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
