"""A detached signature of evidence, by a key of SSH: made and checked by ssh-keygen, as git does.

ssh-keygen -Y sign -f KEY -n macer evidence.json     writes evidence.json.sig

A file of allowed signers has lines such as `name@example.org ssh-ed25519 AAAA…`, as ssh-keygen(1)
describes them.
"""

import shutil
import subprocess
from pathlib import Path

from macer.system.errors import AuditFailed, Mistake

NAMESPACE = "macer"  # a signature made for another purpose does not count
_SECONDS = 60


def check_signature(content: bytes, signature: Path, signers: Path) -> str:
    """The name of the signer of these bytes, whose key must be among the allowed signers."""
    for name, file in (("signature", signature), ("signers", signers)):
        if not file.is_file():
            raise Mistake(f"{name} must be a file, got {file}, which is none")
    program = shutil.which("ssh-keygen")
    if program is None:
        raise Mistake("ssh-keygen must be installed to check a signature; it comes with OpenSSH")
    files = ["-s", str(signature.resolve()), "-f", str(signers.resolve())]
    found = _call([program, "-Y", "find-principals", *files], b"")
    names = found.stdout.decode(errors="replace").splitlines()
    if found.returncode or not names:
        raise AuditFailed(f"{signature} is not a signature by a key of {signers}{_why(found)}")
    checked = ["-Y", "verify", *files, "-I", names[0], "-n", NAMESPACE]
    verified = _call([program, *checked], content)
    if verified.returncode:
        raise AuditFailed(
            f"{signature} is not a signature of this evidence by {names[0]}{_why(verified)}"
        )
    return names[0]


def _call(command: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command, input=content, capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Mistake(f"ssh-keygen must answer within {_SECONDS} seconds, got nothing") from None


def _why(ended: subprocess.CompletedProcess[bytes]) -> str:
    """The reason that ssh-keygen gives, in one line."""
    said = " ".join((ended.stderr + b" " + ended.stdout).decode(errors="replace").split())
    return f": ssh-keygen says {said[:200]!r}" if said else ""
