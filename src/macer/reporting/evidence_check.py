"""The check of evidence.json: it must be what the run gives, hashes and every figure."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from macer import __version__
from macer.data.selection import Selection
from macer.reporting.evidence import SCHEMA, evidence, source
from macer.reporting.logs import read_log, select
from macer.reporting.verdict import ASKED_FOR
from macer.runs.names import JOURNAL
from macer.system.errors import AuditFailed, Mistake
from macer.system.files import read_file

LARGEST = 1 << 24  # bytes of a file of evidence

# What may differ between the evidence and what the run gives: who wrote it, and the folder's name.
_FREE = ("macer", "run")
# What explains other differences comes first.
_FIRST = ("schema", "hashes", "settings", "images")
_ROUNDING = 2.0**-40  # libraries round the last bits of a bound otherwise


def read_evidence(path: Path) -> bytes:
    """The bytes of a file of evidence, read once: what is signed is what is checked."""
    if not path.is_file():
        raise Mistake(f"no evidence at {path}: `macer report RUN --evidence FILE` writes it")
    return read_file(path, limit=LARGEST)


def parse_evidence(content: bytes, path: Path) -> dict[str, Any]:
    """The document in a file's bytes; its keys are not checked."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} must be evidence in JSON: {error!s:.200}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise Mistake(f"{path} must be evidence of schema {SCHEMA}, as `macer report` writes it")
    return document


def check_evidence(document: Mapping[str, Any], folder: Path) -> None:
    """The evidence must be what the run in the folder gives, hashes and every figure."""
    images, radius = _asked_by(document)
    log = select(read_log(folder), images)
    run = source(folder, log)
    if run is None:
        raise Mistake(f"no certificates in {folder}: expected {folder / JOURNAL}")
    again = json.loads(json.dumps(evidence(run, images, radius)))
    order = [*_FIRST, *(key for key in again if key not in _FIRST)]
    for key in [*order, *document]:
        if key not in _FREE and (where := _difference(document.get(key), again.get(key), key)):
            made = document.get("macer")
            by = "" if made == __version__ else f"; it is by macer {made}, this is {__version__}"
            raise AuditFailed(f"the evidence is not of this run: {where}{by:.60}")


def _asked_by(document: Mapping[str, Any]) -> tuple[Selection, float | None]:
    """The images and the radius that the evidence was made for."""
    try:
        parts = [document["images"][name] for name in ("start", "stop", "skip")]
        verdict = document["verdict"]
        radius, asked = verdict["radius"], verdict["radius_chosen"] == ASKED_FOR
        whole = all(type(part) is int or (part is None and i == 1) for i, part in enumerate(parts))
        if not whole or type(radius) not in (int, float):
            raise TypeError("start, stop, skip and radius must be numbers")
    except (KeyError, TypeError) as error:
        raise Mistake(f"evidence must have images and a verdict: {error!s:.100}") from error
    return Selection(*parts), radius if asked else None


def _difference(said: object, found: object, where: str) -> str | None:
    """Where two values of JSON differ first, with both; None if they do not."""
    if isinstance(said, dict) and isinstance(found, dict):
        keys = dict.fromkeys([*found, *said])
        parts = (_difference(said.get(k), found.get(k), f"{where}.{k}") for k in keys)
        return next(filter(None, parts), None)
    if isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        pairs = enumerate(zip(said, found, strict=True))
        return next(filter(None, (_difference(a, b, f"{where}[{i}]") for i, (a, b) in pairs)), None)
    if type(said) is type(found) and (said == found or _close(said, found)):
        return None
    return f"{where} is {_short(said)}, the run gives {_short(found)}"


def _close(a: object, b: object) -> bool:
    return isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=_ROUNDING)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]}…"
