"""The commit that this package is of: a wheel carries it, a source tree's git knows it.

It imports nothing of macer: hatch_build.py runs it before there is a package.
"""

import subprocess
from pathlib import Path

FILE = "commit.txt"  # hatch_build.py puts it beside this module
HASH = 40
SHORT = 10


def commit() -> str | None:
    """The commit's hash, with -dirty where files differ from it; None if nobody knows."""
    here = Path(__file__).parent
    try:
        return (here / FILE).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return _commit_of(here.parents[2])


def shortened(commit: str) -> str:
    """Enough of the hash to tell it from others, and whether files differed."""
    return commit[:SHORT] + commit[HASH:]


def _commit_of(tree: Path) -> str | None:
    if not (tree / ".git").exists():
        return None
    git = ["git", "--no-optional-locks", "-C", str(tree)]
    status = ["status", "--porcelain=v2", "--branch", "--untracked-files=normal"]
    try:
        result = subprocess.run([*git, *status], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return _read_status(result.stdout.decode(errors="replace").splitlines())


def _read_status(lines: list[str]) -> str | None:
    """Unlike `git describe --dirty`: a module that git does not know makes the tree dirty too."""
    found = [line.split()[-1] for line in lines if line.startswith("# branch.oid")]
    if not found or found == ["(initial)"]:
        return None
    dirty = any(line.startswith(("1 ", "2 ", "u ", "? src/")) for line in lines)
    return found[0][:HASH] + "-dirty" * dirty
