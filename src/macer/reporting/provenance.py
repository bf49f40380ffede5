"""The model that a log's certificates are of: its training, and the SHA-256 of its weights."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from macer.runs.names import MANIFEST
from macer.system.errors import Mistake
from macer.system.files import read_text

LARGEST_MANIFEST = 1 << 24  # bytes


class Provenance(NamedTuple):
    """What the manifest of a run says; empty where it says nothing."""

    name: str  # of the log
    loss: str
    network: str
    dataset: str
    seed: str
    weights_sha256: str
    data_sha256: str  # of the training images

    def training(self) -> dict[str, str | None]:
        """How the model was trained; None where the manifest does not say."""
        names = ("loss", "network", "dataset", "seed")
        return {name: getattr(self, name) or None for name in names}


def provenance(folder: Path, name: str) -> Provenance | None:
    """The model of the certificates in a run's folder; None where there is no run."""
    manifest = _read_manifest(folder)
    if manifest is None:
        return None
    recipe = manifest.get("recipe")
    if not isinstance(recipe, dict):  # a packed model has none
        recipe = {}
    training = [_loss(recipe), *(recipe.get(field) for field in ("model", "dataset", "seed"))]
    hashes = [manifest.get(field) for field in ("weights_sha256", "data_sha256")]
    return Provenance(name, *("" if value is None else str(value) for value in training + hashes))


def versions_of(folder: Path) -> dict[str, str | None] | None:
    """The versions that made a run's model; None where there is no run."""
    manifest = _read_manifest(folder)
    if manifest is None:
        return None
    versions = manifest.get("versions")
    known = {**manifest, **(versions if isinstance(versions, dict) else {})}
    names = ("macer", "python", "torch", "numpy", "commit", "device")
    return {name: None if known.get(name) is None else str(known[name]) for name in names}


def date_of(folder: Path) -> str | None:
    """The day on which a run's training ended, as its manifest states it."""
    date = (_read_manifest(folder) or {}).get("date")
    return date if isinstance(date, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", date) else None


def _loss(recipe: dict[str, Any]) -> object:
    """The loss's name and settings; of an older run, whose settings stood elsewhere, its name."""
    loss = recipe.get("loss")
    if not isinstance(loss, dict):
        return loss
    settings = [f"{name} {value}" for name, value in loss.items() if name != "name"]
    return ", ".join([str(loss.get("name")), *settings])


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    """A run's manifest, None where there is no run; `runs.run` checks more, but imports torch."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        manifest = json.loads(read_text(file, limit=LARGEST_MANIFEST))
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{file} must be a manifest in JSON: {error!r:.200}") from error
    if not isinstance(manifest, dict):
        raise Mistake(f"{file} must be a manifest in JSON, got {type(manifest).__name__}")
    return manifest
