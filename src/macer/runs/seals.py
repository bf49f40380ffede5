"""Whose code a run names: a seal by a key that its user keeps outside of every run.

A run made with code of one's own records the modules. A valid seal shows that this user made the
run with these modules and ended with these weights; only then are the modules admitted unasked.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from macer.system.errors import Mistake
from macer.system.files import sync_folder
from macer.system.user_code import OwnModule

KEY_BYTES = 32
_KEYS = {"module", "folder", "sha256"}  # of an OwnModule


def key_file() -> Path:
    """The file of the user's key: $MACER_HOME/key, or in the usual folder for users' data."""
    if given := os.environ.get("MACER_HOME"):
        return Path(given) / "key"
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/macer/key"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "macer/key"


def ensure_key() -> bytes:
    """The user's key, made when there is none: 32 random bytes that she alone can read."""
    file = key_file()
    if not file.exists():
        try:
            _make_key(file)
        except OSError as error:
            raise Mistake(
                "MACER_HOME must be a folder for the key that seals runs with code of your own, "
                f"got {file.parent}, which cannot be used: {error.strerror}; set $MACER_HOME to "
                "a folder that can be written"
            ) from error
    return _read_key(file)


def _make_key(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = file.with_name(f".key.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(secrets.token_bytes(KEY_BYTES))
        opened.flush()
        os.fsync(opened.fileno())
    with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
        os.link(temporary, file)
    temporary.unlink()
    sync_folder(file.parent)


def _read_key(file: Path) -> bytes:
    key = file.read_bytes()
    if len(key) != KEY_BYTES:
        raise Mistake(
            f"{file} must hold a key of {KEY_BYTES} bytes, got {len(key)}; remove it, and a new "
            "one is made with the next run"
        )
    return key


def sealed(modules: Sequence[OwnModule], weights_sha256: str) -> dict[str, Any]:
    """What a manifest says of a user's own code, once its run has weights."""
    return {"modules": modules, "seal": _seal(ensure_key(), modules, weights_sha256)}


def owners_folders(code: object, weights_sha256: str) -> dict[str, str]:
    """The folders of the modules that a manifest's valid seal admits; empty for a stranger's."""
    match code:
        case {"modules": [*modules], "seal": str(seal)} if all(map(_is_module, modules)):
            pass
        case _:
            return {}
    if not key_file().exists():
        return {}
    expected = _seal(_read_key(key_file()), modules, weights_sha256)
    if not hmac.compare_digest(expected.encode(), seal.encode(errors="replace")):
        return {}
    return {module["module"]: module["folder"] for module in modules}


def _is_module(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == _KEYS
        and all(isinstance(text, str) for text in value.values())
    )


def _seal(key: bytes, modules: Sequence[OwnModule], weights_sha256: str) -> str:
    message = json.dumps(["macer run", modules, weights_sha256], sort_keys=True)
    return hmac.new(key, message.encode(), hashlib.sha256).hexdigest()
