"""A run is a folder: what was asked for, how far it got, and what came of it; see `names`."""

import json
import math
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import torch

from macer import __version__
from macer.recipes import TrainRecipe
from macer.recipes.older import from_flat, is_flat
from macer.runs.names import CHECKPOINTS, JOURNAL, MANIFEST, METRICS, MODEL
from macer.runs.seals import ensure_key
from macer.system.commit import commit
from macer.system.errors import Mistake
from macer.system.files import locked, read_text, sync_folder, write_atomically
from macer.system.user_code import OwnModule

Metrics = dict[str, Any]

LARGEST_TEXT = 1 << 24  # bytes of a manifest and of metrics; a thousand epochs take one thirtieth
MOST_EPOCHS = 1 << 20
LOOK = ("validation_accuracy", "validation_radius")
_REQUIRED = ("recipe", "data_sha256")  # entries that every manifest has
# The types of the entries that are read again; each may be null.
_ENTRIES = {
    "recipe": dict,
    "data_sha256": str,
    "weights_sha256": str,
    "models_sha256": dict,
    "members": dict,
    "init": dict,
    "speed": dict,
}


@dataclass(frozen=True)
class Run:
    """The paths of a run, and the few things that are written there."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """What was asked for and what came of it."""
        return self.folder / MANIFEST

    @property
    def model(self) -> Path:
        """Final weights."""
        return self.folder / MODEL

    @property
    def metrics(self) -> Path:
        """One line per epoch."""
        return self.folder / METRICS

    @property
    def checkpoints(self) -> Path:
        """The newest generations of the training's state."""
        return self.folder / CHECKPOINTS

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, or a Mistake that says what is wrong with it."""
        if not self.manifest.is_file():
            raise Mistake(f"no run in {self.folder}: expected {self.manifest}")
        text = read_text(self.manifest, limit=LARGEST_TEXT)
        try:
            manifest: dict[str, Any] = json.loads(text)
            for name, kind in _ENTRIES.items():
                if not isinstance(manifest.get(name, kind()), kind | NoneType):
                    raise TypeError(f"{name} must be of type {kind.__name__}")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Mistake(f"{self.manifest} must be a manifest in JSON: {error!r:.200}") from error
        if missing := [name for name in _REQUIRED if name not in manifest]:
            raise Mistake(f"{self.manifest} must be a manifest in JSON: it has no {missing[0]}")
        return manifest

    def read_recipe(self) -> TrainRecipe:
        """The recipe that the run was begun with, only to look at: its names may be code."""
        fields = self.read_manifest()["recipe"]
        if fields is None:
            raise Mistake(
                f"{self.folder} was packed, not trained: it has no recipe, and nothing tells what "
                "its network learnt from"
            )
        try:
            return TrainRecipe(**from_flat(fields) if is_flat(fields) else fields)
        except (TypeError, OverflowError, Mistake) as error:
            raise _unknown_recipe(self, error) from error

    def learners(self) -> list["Run"]:
        """The runs that learnt what this one's model knows: itself, or an ensemble's members."""
        members = self.read_manifest().get("members") or {}
        for name, sha256 in members.items():
            if Run(Path(name)).read_manifest().get("weights_sha256") != sha256:
                raise Mistake(
                    f"{name} must be the model that {self.folder} was made of; its SHA-256 differs"
                )
        return [Run(Path(name)) for name in members] or [self]

    def read_metrics(self) -> list[Metrics]:
        """The metrics of each recorded epoch, or a Mistake that says what is wrong with them."""
        if not self.metrics.is_file():
            return []
        text = read_text(self.metrics, limit=LARGEST_TEXT)
        try:
            lines = [json.loads(line) for line in text.splitlines()]
            for line in lines:
                _check_metrics(line)
            return lines
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Mistake(
                f"{self.metrics} must have one epoch's metrics per line, in JSON: {error!r:.200}; "
                "move the file away to go on without it"
            ) from error

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, whole."""
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        write_atomically(self.manifest, (text + "\n").encode())


def _check_metrics(line: Metrics) -> None:
    """Refuse metrics that no epoch can have; a loss may be any number."""
    for name in ("epoch", "step", "samples_per_second"):
        value = line[name]
        if not isinstance(value, int | float) or not 0 < value < 1e18:
            raise ValueError(f"{name} must be a number > 0, got {value!r:.40}")
    if not isinstance(line["epoch"], int) or line["epoch"] > MOST_EPOCHS:
        raise ValueError(f"epoch must be a whole number up to {MOST_EPOCHS:,}")
    looked = [line[name] for name in LOOK if name in line]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in looked):
        raise ValueError(f"{' and '.join(LOOK)} must be finite numbers")


def begin_run(
    folder: Path,
    recipe: TrainRecipe,
    data_sha256: str,
    test_sha256: str | None = None,
    *,
    resume: bool,
    models_sha256: dict[str, str] | None = None,
    init: dict[str, Any] | None = None,
    code: Sequence[OwnModule] = (),
    complete: Callable[[TrainRecipe], TrainRecipe] = lambda recipe: recipe,
) -> Run:
    """Make a new run, or continue one that was asked for with the same recipe and data.

    Args:
        test_sha256: of the test images that a caller gave with the training images.
        models_sha256: of the models that the recipe's fields name, by field.
        init: the file that the first weights came from, and which of them did not.
        code: the modules of the user's own that the recipe names.
        complete: gives a recorded recipe the settings of its loss that came after the run began.
    """
    inputs = {"data_sha256": data_sha256, "models_sha256": models_sha256 or {}}
    run = Run(folder)
    if code:
        ensure_key()  # what cannot be sealed at the end is refused at the beginning
    if run.manifest.exists() and (resume or not _untrained(run)):
        if not resume:
            raise Mistake(
                f"{folder} holds a run already; continue it with --resume or choose another --out"
            )
        check_same(run, recipe, inputs, complete)
    else:
        recorded: dict[str, Any] = {"code": {"modules": code}} if code else {}
        recorded |= {"init": init} if init else {}
        if test_sha256 is not None:
            recorded["test_sha256"] = test_sha256
        new_run(folder, {"recipe": recipe.to_dict(), **inputs, **recorded, "status": "training"})
    run.checkpoints.mkdir(exist_ok=True)
    sync_folder(folder)
    return run


def new_run(folder: Path, record: dict[str, Any]) -> Run:
    """Make a run in a new folder: its manifest has the record, and the versions it is made with."""
    run = Run(folder)
    if folder.exists() and not (run.manifest.exists() or _is_new(folder)):
        raise Mistake(f"{folder} must be a new folder or a run; choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        check_no_run(folder)  # perhaps since a moment ago
        run.write_manifest({"macer": __version__, **record, **_made_with()})
    return run


def check_no_run(folder: Path) -> None:
    """Refuse a folder with a run that has learnt something."""
    run = Run(folder)
    if run.manifest.exists() and not _untrained(run):
        raise Mistake(f"{folder} holds a run already; choose another --out")


def _made_with() -> dict[str, Any]:
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "commit": commit(),
    }


def _is_new(folder: Path) -> bool:
    """Whether nothing is there but what a run has before its manifest: an empty checkpoints/."""
    return folder.is_dir() and all(
        entry.name == CHECKPOINTS and entry.is_dir() and not any(entry.iterdir())
        for entry in folder.iterdir()
        if not entry.name.startswith(".")
    )


def _untrained(run: Run) -> bool:
    """Whether a run's training has left nothing that could go on: it failed at its first steps."""
    made = [run.model, run.metrics, run.folder / JOURNAL, *run.checkpoints.glob("*.safetensors")]
    with suppress(Mistake):
        return not any(map(Path.exists, made)) and run.read_manifest().get("status") == "training"
    return False


def check_same(
    run: Run,
    recipe: TrainRecipe,
    inputs: dict[str, Any],
    complete: Callable[[TrainRecipe], TrainRecipe],
) -> None:
    """Refuse to go on with a run that was begun with another recipe, other data or models."""
    manifest, folder = run.read_manifest(), run.folder
    if manifest["recipe"] is None:
        raise Mistake(f"{folder} was packed, not trained, and cannot go on; choose another --out")
    began = run.read_recipe()
    if began.loss.name == recipe.loss.name:
        # A setting that came after the run began had no effect on it, as its default has none.
        # The settings of another loss are left alone: to complete them would import its code.
        began = _completed(began, run, complete)
    recorded, asked = _plain(began.flat()), _plain(recipe.flat())
    for name in recorded:
        if asked.get(name) != recorded[name]:
            raise Mistake(
                f"{name} must be {recorded[name]} to resume {folder}, got {asked.get(name)}"
            )
    if manifest["data_sha256"] != inputs["data_sha256"]:
        raise Mistake(f"the training data must be those {folder} began with; their SHA-256 differs")
    for name, sha256 in inputs["models_sha256"].items():
        if manifest.get("models_sha256", {}).get(name) != sha256:
            raise Mistake(
                f"{name} must be the model that {folder} began with; the SHA-256 of "
                f"{asked[name]} differs"
            )


def _completed(
    recipe: TrainRecipe, run: Run, complete: Callable[[TrainRecipe], TrainRecipe]
) -> TrainRecipe:
    try:
        return complete(recipe)
    except Mistake as mistake:
        raise _unknown_recipe(run, mistake) from mistake


def _unknown_recipe(run: Run, error: Exception) -> Mistake:
    return Mistake(f"{run.manifest} must have a recipe that this macer knows: {error}")


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them: lists for tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
