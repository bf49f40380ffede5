"""The model of a run, of a model file or of the zoo: found, checked and loaded."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from macer.models.build import normalised
from macer.models.graph_files import GRAPHS, graph_kind, network_of
from macer.models.weights import Tensors
from macer.runs.model_file import ModelCard, model_bytes, parse_model
from macer.runs.names import JOURNAL
from macer.runs.run import Run
from macer.runs.seals import owners_folders
from macer.runs.zoo import check_zoo_file, in_zoo, nearest_model, zoo_file
from macer.system.errors import Mistake
from macer.system.files import read_file, write_atomically
from macer.system.user_code import check_admitted, module_of, names_a_function

GRAPH = "graph"  # the tensor of a model file whose network is a file of ONNX or TorchScript


def save_model(path: Path, tensors: Tensors, card: ModelCard) -> str:
    """Write weights and card; return the file's SHA-256."""
    content = model_bytes(tensors, card)
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def model_file(target: Path | str) -> Path:
    """The file of a run folder's model or of zoo:NAME, or the model file itself."""
    if in_zoo(target):
        return zoo_file(target)
    path = Path(target)
    if not path.exists():
        guess = nearest_model(path)
        raise Mistake(f"no run or model at {path}{guess}; name a run folder or a model file")
    file = Run(path).model if path.is_dir() else path
    if not file.is_file():
        remedy = ""
        if (path / JOURNAL).is_file():
            remedy = (
                "; it has certificates alone: make a run of the network that they are of by "
                "`macer pack`, and certify that"
            )
        raise Mistake(f"no model in {path}: expected {file}{remedy}")
    if graph_kind(file):
        raise Mistake(
            f"{file} must be a run or a model file, got a network without σ and classes; make a "
            f"run of it: macer pack {file} --sigma S --dataset NAME --out RUN"
        )
    return file


@dataclass(frozen=True)
class LoadedModel:
    """A model in eval mode on the CPU, what its file says of it, and the file."""

    model: nn.Sequential
    card: ModelCard
    file: Path
    sha256: str  # of the file


def load_model(
    target: Path | str, *, code: Collection[str] = ()
) -> tuple[nn.Sequential, ModelCard]:
    """The model of a run folder, of a model file or of zoo:NAME, in eval mode on the CPU.

    Weights that the file keeps in fewer bits are cast to the network's own type.

    Args:
        code: modules that the file may name for its network, besides those of macer; those of a
            run that this user made with code of her own are admitted by its seal.
    """
    loaded = open_model(target, code=code)
    return loaded.model, loaded.card


def open_model(target: Path | str, *, code: Collection[str] = ()) -> LoadedModel:
    """As `load_model`, with the file and its hash; the file is read once."""
    card, tensors, file, sha256 = read_model(target)
    if card.architecture in GRAPHS:
        owned = own_folders(file, sha256)
        return LoadedModel(_graph_model(card, tensors, file, {*code, *owned}), card, file, sha256)
    folders = own_folders(file, sha256) if names_a_function(card.architecture) else {}
    check_admitted(card.architecture, {*code, *folders}, source=file)
    module = module_of(card.architecture)
    model = card.build(None if module in code else folders.get(module))
    fill(model, card, tensors, file)
    return LoadedModel(model.eval(), card, file, sha256)


def read_model(target: Path | str) -> tuple[ModelCard, Tensors, Path, str]:
    """The card, the tensors, the file and its SHA-256; nothing that it names is imported."""
    file = model_file(target)
    content = read_file(file)
    sha256 = hashlib.sha256(content).hexdigest()
    check_source(target, file, sha256)
    return *parse_model(content, file), file, sha256


def fill(model: nn.Module, card: ModelCard, tensors: Tensors, file: Path) -> None:
    """Give a fresh model the weights of its file, which must have them all and no others."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise Mistake(
            f"{file} must hold the weights of {card.architecture}: {str(error).splitlines()[-1]}"
        ) from error


def _graph_model(
    card: ModelCard, tensors: Tensors, file: Path, code: Collection[str]
) -> nn.Sequential:
    """The model whose network is a file of ONNX or TorchScript, kept as the bytes of a tensor."""
    content = tensors.get(GRAPH)
    if len(tensors) != 1 or content is None or content.dtype != torch.uint8 or content.ndim != 1:
        raise Mistake(
            f"{file} must hold one tensor of bytes, {GRAPH!r}, for its {card.architecture}"
        )
    source = content.numpy().tobytes()
    network = network_of(card.architecture, source, name=str(file), code=code)
    classes = len(card.classes)
    return normalised(
        network, str(file), num_classes=classes, shape=card.shape, mean=card.mean, std=card.std
    ).eval()


def check_source(target: Path | str, file: Path, sha256: str) -> None:
    """Refuse the model of the zoo or of a run if its SHA-256 is not the recorded one."""
    if in_zoo(target):
        check_zoo_file(file, sha256)
    elif file == Run(Path(target)).model:
        _check_weights(Run(Path(target)), sha256)


def own_folders(file: Path, sha256: str) -> dict[str, str]:
    """The user's own modules, with their folders, if the file is the model of a run of hers."""
    run = Run(file.parent)
    if file != run.model or not run.manifest.is_file():
        return {}
    return owners_folders(run.read_manifest().get("code"), sha256)


def _check_weights(run: Run, sha256: str) -> None:
    expected = run.read_manifest().get("weights_sha256")
    if expected and sha256 != expected:
        raise Mistake(
            f"{run.model} must have the SHA-256 its manifest names, {str(expected)[:16]}…; "
            "the file is damaged or another model's"
        )
