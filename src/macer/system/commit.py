"""The commit of this package, from a file in the wheel or from the source tree's git.

This module imports nothing of macer, because hatch_build.py runs it before the package exists.
"""

import subprocess
from pathlib import Path

FILE = "commit.txt"  # hatch_build.py puts it beside this module
HASH = 40  # characters of a whole hash
SHORT = 10


def commit() -> str | None:
    """The commit's hash, with -dirty if files differ from it; None if it is unknown."""
    folder = Path(__file__).parent
    try:
        return (folder / FILE).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return _commit_of(folder.parents[2])


def short_hash(commit: str) -> str:
    """The first characters of the hash, and -dirty if it was there."""
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
    """The commit that `git status` names; unlike `git describe`, new files in src are dirty too."""
    hashes = [line.split()[-1] for line in lines if line.startswith("# branch.oid")]
    if not hashes or hashes == ["(initial)"]:
        return None
    dirty = any(line.startswith(("1 ", "2 ", "u ", "? src/")) for line in lines)
    return hashes[0][:HASH] + ("-dirty" if dirty else "")
