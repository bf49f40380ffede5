"""A run is a folder: what was asked for, how far it got, and what came of it.

manifest.json            recipe, seed, versions, device, SHA-256 of data and weights, commit
checkpoints/             the newest two generations
model.safetensors        final weights; its metadata rebuild the model
metrics.jsonl            one line an epoch
certificates.journal     one checksummed record a certified image
certificates.tsv         the same as a table, derived
"""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from macer import __version__
from macer.building import build_model
from macer.commit import commit
from macer.files import locked, sha256_of_file, sync_folder, write_atomically
from macer.mistake import Mistake
from macer.recipes import TrainRecipe, recipe_from
from macer.zoo import in_zoo, zoo_file

Tensors = dict[str, Tensor]
Metrics = dict[str, Any]

GENERATIONS = 2


@dataclass(frozen=True)
class Run:
    """The paths of a run, and the few things that are written there."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """What was asked for and what came of it."""
        return self.folder / "manifest.json"

    @property
    def model(self) -> Path:
        """Final weights."""
        return self.folder / "model.safetensors"

    @property
    def metrics(self) -> Path:
        """One line an epoch."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The newest generations of the training's state."""
        return self.folder / "checkpoints"

    def read_manifest(self) -> dict[str, Any]:
        """The manifest, or a Mistake that says what is wrong with it."""
        if not self.manifest.is_file():
            raise Mistake(f"no run in {self.folder}: expected {self.manifest}")
        try:
            manifest: dict[str, Any] = json.loads(self.manifest.read_text(encoding="utf-8"))
            manifest["recipe"], manifest["data_sha256"]
        except (ValueError, TypeError, KeyError) as error:
            raise Mistake(f"{self.manifest} must be a manifest in JSON: {error!r}") from error
        return manifest

    def read_recipe(self) -> TrainRecipe:
        """The recipe that the run was asked for with."""
        fields = self.read_manifest()["recipe"]
        try:
            return recipe_from(fields)
        except (TypeError, AttributeError) as error:
            raise Mistake(
                f"{self.manifest} must have a recipe that this macer knows: {error}"
            ) from error

    def read_metrics(self) -> list[Metrics]:
        """The metrics of each recorded epoch, or a Mistake that says what is wrong with them."""
        if not self.metrics.is_file():
            return []
        try:
            lines = [json.loads(line) for line in self.metrics.read_text("utf-8").splitlines()]
            for line in lines:
                line["epoch"], line["step"], line["samples_per_second"]
            return lines
        except (ValueError, TypeError, KeyError) as error:
            raise Mistake(
                f"{self.metrics} must have an epoch's metrics a line, in JSON: {error!r}; move the "
                "file away to go on without it"
            ) from error

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, whole."""
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        write_atomically(self.manifest, (text + "\n").encode())


def open_run(
    folder: Path,
    recipe: TrainRecipe,
    data_sha256: str,
    *,
    resume: bool,
    models_sha256: dict[str, str] | None = None,
) -> Run:
    """Make a new run, or continue one that was asked for with the same recipe and data.

    Args:
        models_sha256: of the models that the recipe's fields name, by field.
    """
    inputs = {"data_sha256": data_sha256, "models_sha256": models_sha256 or {}}
    run = Run(folder)
    if run.manifest.exists():
        if not resume:
            raise Mistake(
                f"{folder} holds a run already; continue it with --resume or choose another --out"
            )
        _check_same(run.read_manifest(), recipe, inputs, folder)
        return run
    if folder.exists() and not _is_new(folder):
        raise Mistake(f"{folder} must be a new folder or a run; choose another --out")
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    sync_folder(folder)
    with locked(folder):
        if run.manifest.exists():  # another process was faster
            raise Mistake(f"{folder} holds a run already; choose another --out")
        run.write_manifest(_first_manifest(recipe, inputs))
    return run


def _first_manifest(recipe: TrainRecipe, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "macer": __version__,
        "recipe": asdict(recipe),
        **inputs,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "commit": commit(),
        "status": "training",
    }


def _is_new(folder: Path) -> bool:
    """Whether nothing is there but what a run has before its manifest: an empty checkpoints/."""
    return folder.is_dir() and all(
        entry.name == "checkpoints" and entry.is_dir() and not any(entry.iterdir())
        for entry in folder.iterdir()
        if not entry.name.startswith(".")
    )


def _check_same(
    manifest: dict[str, Any], recipe: TrainRecipe, inputs: dict[str, Any], folder: Path
) -> None:
    asked = json.loads(json.dumps(asdict(recipe)))
    # A field that came after the run began had no effect on it, as its default has none.
    recorded = json.loads(json.dumps(asdict(TrainRecipe()))) | manifest["recipe"]
    for name in asked:
        if asked[name] != recorded[name]:
            raise Mistake(f"{name} must be {recorded[name]} to resume {folder}, got {asked[name]}")
    if manifest["data_sha256"] != inputs["data_sha256"]:
        raise Mistake(f"the training data must be those {folder} began with; their SHA-256 differs")
    for name, sha256 in inputs["models_sha256"].items():
        if manifest.get("models_sha256", {}).get(name) != sha256:
            raise Mistake(
                f"{name} must be the model that {folder} began with; the SHA-256 of "
                f"{asked[name]} differs"
            )


def save_checkpoint(run: Run, tensors: Tensors, state: dict[str, int]) -> None:
    """Add a generation and remove those beyond the newest two.

    The file's name ends in the hash of its content, so that a damaged one is known as such.
    """
    metadata = {name: str(value) for name, value in state.items()}
    content = save_tensors(_plain(tensors), metadata)
    digest = hashlib.sha256(content).hexdigest()[:16]
    write_atomically(run.checkpoints / f"{state['step']:09d}-{digest}.safetensors", content)
    for old in _generations(run)[GENERATIONS:]:
        old.unlink()


def load_checkpoint(run: Run) -> tuple[Tensors, dict[str, int], list[Path]] | None:
    """The newest generation that is undamaged, and the damaged ones passed over; None if new."""
    damaged: list[Path] = []
    generations = _generations(run)
    for path in generations:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] != path.stem.partition("-")[2]:
            damaged.append(path)
            continue
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        return load_tensors(content), {k: int(v) for k, v in metadata.items()}, damaged
    if damaged:
        names = ", ".join(str(path) for path in damaged)
        raise Mistake(
            f"every checkpoint is damaged: {names}; "
            "delete the run's folder to train again from the start"
        )
    return None


def _generations(run: Run) -> list[Path]:
    """Checkpoint files, newest first."""
    return sorted(run.checkpoints.glob("*-*.safetensors"), reverse=True)


def _plain(tensors: Tensors) -> Tensors:
    """Contiguous copies on the CPU: what safetensors takes."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()
    }


@dataclass(frozen=True)
class ModelCard:
    """What a model file says of itself, enough to rebuild and to certify it."""

    architecture: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sigma: float
    dataset: str

    @classmethod
    def from_json(cls, text: str) -> "ModelCard":
        """The card that `asdict` and JSON made."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(text).items()
        }
        return cls(**fields)

    def build(self) -> nn.Sequential:
        """The network with fresh weights."""
        return build_model(
            self.architecture,
            num_classes=len(self.classes),
            shape=self.shape,
            mean=self.mean,
            std=self.std,
        )


def save_model(path: Path, tensors: Tensors, card: ModelCard) -> str:
    """Write weights and card; return the file's SHA-256."""
    content = model_bytes(tensors, card)
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def model_bytes(tensors: Tensors, card: ModelCard) -> bytes:
    """The content of a model file."""
    return save_tensors(_plain(tensors), {"macer": json.dumps(asdict(card))})


def model_file(target: Path | str) -> Path:
    """The file of a run folder's model or of zoo:NAME, or the model file itself."""
    if in_zoo(target):
        return zoo_file(target)
    path = Path(target)
    if not path.exists():
        raise Mistake(f"no run or model at {path}; name a run folder or a model file")
    file = Run(path).model if path.is_dir() else path
    if not file.is_file():
        raise Mistake(f"no model in {path}: expected {file}")
    return file


def load_model(target: Path | str) -> tuple[nn.Sequential, ModelCard]:
    """The model of a run folder, of a model file or of zoo:NAME, in eval mode on the CPU.

    Weights that the file keeps in fewer bits are cast to the network's own type.
    """
    file = model_file(target)
    if file == Run(Path(target)).model:
        _check_weights(Run(Path(target)))
    card, tensors = _read_model(file)
    model = card.build()
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise Mistake(
            f"{file} must hold the weights of {card.architecture}: {str(error).splitlines()[-1]}"
        ) from error
    return model.eval(), card


def _check_weights(run: Run) -> None:
    expected = run.read_manifest().get("weights_sha256")
    if expected and sha256_of_file(run.model) != expected:
        raise Mistake(
            f"{run.model} must have the SHA-256 its manifest names, {expected[:16]}…; "
            "the file is damaged or another model's"
        )


def _read_model(file: Path) -> tuple[ModelCard, Tensors]:
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        card = ModelCard.from_json(metadata["macer"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise Mistake(
            f"{file} must be a model file written by macer train: {error}; for other weights name "
            "their network and add --weights FILE"
        ) from error
    return card, tensors
