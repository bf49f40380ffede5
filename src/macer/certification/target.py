"""The model that a user names: a run's, a file's, one of the zoo, her own, or a known network."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from macer.certification.header import TRAINED_AT, Header, Outputs, outputs_agree
from macer.certification.identity import outputs_of, with_code
from macer.data.arrays import class_names
from macer.data.sets import Split
from macer.models.build import build_model, normalised
from macer.models.graph_files import ONNX, graph_kind, network_of
from macer.models.inference import for_inference
from macer.models.networks import MODELS, Normalize
from macer.models.normalisation import find_normalisation, named_normalisation
from macer.models.probe import CALLS
from macer.models.weights import load_weights, read_weights
from macer.runs.model_file import ModelCard, digest_of_tensors
from macer.runs.trained_model import open_model
from macer.runs.zoo import in_zoo, nearest_model, zoo_file
from macer.system.errors import Mistake
from macer.system.files import read_file
from macer.system.progress import bar
from macer.system.user_code import names_a_function


@dataclass(frozen=True)
class Target:
    """A model to certify, and what the journal's header says of it."""

    model: nn.Module
    name: str  # as the user wrote it
    architecture: str  # and the hash of its code, where that is the user's
    sigma: float
    shape: tuple[int, ...]
    num_classes: int
    weights_sha256: str
    file: Path | None = None  # a trained model's


@dataclass(frozen=True)
class PreparedModel:
    """A target as it is certified: in one precision on a device."""

    target: Target
    network: nn.Module
    precision: str
    row_by_row: bool  # the network sees one noisy image at a time
    device: torch.device

    @cached_property
    def outputs(self) -> Outputs:
        """Its outputs on the probe images; certificates bind them."""
        with bar("running the network once", 1, "calls", transient=True):
            return outputs_of(
                self.network,
                shape=self.target.shape,
                sigma=self.target.sigma,
                device=self.device,
                row_by_row=self.row_by_row,
            )


def prepare(
    target: Target, *, precision: str, row_by_row: bool, device: torch.device
) -> PreparedModel:
    """The target as certification runs it; a command does this once."""
    if precision != "fp32" and is_onnx(target):
        raise Mistake(
            f"precision must be fp32 for {target.name}, an ONNX graph with arithmetic of its own, "
            f"got {precision}; add --precision fp32"
        )
    with bar("preparing the network", CALLS - 1, "calls", transient=True) as advance:
        network = for_inference(
            target.model, shape=target.shape, precision=precision, device=device, progress=advance
        )
    return PreparedModel(target, network, precision, row_by_row, device)


def other_function(header: Header, model: PreparedModel) -> str | None:
    """Why a model is not the one that a journal certifies; None if it is."""
    target = model.target
    if header.weights_sha256 != target.weights_sha256:
        return (
            f"weights_sha256 is {target.weights_sha256[:16]}…, the journal names "
            f"{header.weights_sha256[:16]}…"
        )
    if header.model != target.architecture:
        return f"the model is {target.architecture}, the journal names {header.model}"
    if header.outputs is not None and not outputs_agree(
        header.outputs, model.outputs, header.precision
    ):
        return (
            "the network computes something else than when it was certified: its outputs on the "
            "journal's probe images are others, though weights and source are the same"
        )
    return None


def find_target(
    name: str,
    *,
    sigma: float | None,
    split: Split,
    classes: Sequence[str],
    weights: Path | None = None,
    normalise: str | None = None,
    code: Collection[str] = (),
    known: tuple[Target, ModelCard] | None = None,
) -> Target:
    """The model of a run folder, a model file, zoo:NAME, package.module:function or `MODELS`.

    Or that of a file of ONNX or TorchScript.

    Args:
        sigma: of the noise; a trained model's own if None.
        classes: the names of the data set's classes; empty if it does not tell.
        weights: a file for a network by name; a function may come without one.
        normalise: the normalisation before a network by name, see `named_normalisation`.
        code: modules that a model file may name, see `load_model`; `name` itself may be any. A
            TorchScript file must be admitted here.
        known: what `trained_target` gave for this name, if it was asked before.
    """
    check_target(name, weights=weights, normalise=normalise)
    if weights is None and is_trained(name):
        target, card = known or trained_target(name, code=code)
        if card.value_range != split.value_range:
            raise Mistake(
                f"{name} takes inputs of the value_range {card.value_range}, those of the data set "
                f"have {split.value_range}; choose another --dataset"
            )
        _check_data(card, name, classes or class_names(card.classes, split))
        return at_sigma(target, sigma)
    if sigma is None:
        raise Mistake(f"sigma must be given to certify {name}; add --sigma")
    classes = classes or class_names(None, split)
    channels, height, width = split.images.shape[1:]
    shape = (channels, height, width)
    if kind := graph_kind(name):
        target = _graph_target(name, kind, sigma, shape, len(classes), code)
        normalisation = named_normalisation(normalise or "none", channels)
        target.model.set_submodule("0", Normalize(*normalisation))
        return replace(target, architecture=f"{kind}, {normalisation}")
    model = build_model(name, num_classes=len(classes), shape=shape)
    source = with_code(name)
    if weights is None:
        model[0] = Normalize(*named_normalisation(normalise or "none", channels))
        return Target(model, name, source, sigma, shape, len(classes), weights_digest(model))
    file = read_weights(weights)
    place = load_weights(model[1], file, name)
    normalisation = find_normalisation(file, place, name, asked=normalise, channels=channels)
    model[0] = Normalize(*normalisation)
    # The hash of a file does not tell what stands before its network: the architecture does.
    architecture = f"{source}, {normalisation}"
    return Target(model, name, architecture, sigma, shape, len(classes), file.sha256)


def _graph_target(
    name: str,
    kind: str,
    sigma: float,
    shape: tuple[int, int, int],
    num_classes: int,
    code: Collection[str],
) -> Target:
    """The network of a file of ONNX or TorchScript, without a normalisation before it."""
    content = read_file(Path(name))
    network = network_of(kind, content, name=name, code=code)
    model = normalised(network, name, num_classes=num_classes, shape=shape)
    return Target(model, name, kind, sigma, shape, num_classes, hashlib.sha256(content).hexdigest())


def is_onnx(target: Target) -> bool:
    """Whether a target is an ONNX graph: it has no gradients, and a precision of its own."""
    return target.architecture.partition(",")[0] == ONNX


def untrained_target(
    name: str,
    *,
    sigma: float,
    shape: tuple[int, int, int],
    num_classes: int,
    denoiser: str = "none",
    code: Collection[str] = (),
) -> Target:
    """A network by its name, package.module:function or file; fresh weights will do."""
    if kind := graph_kind(name):
        return _graph_target(name, kind, sigma, shape, num_classes, code)
    model = build_model(name, num_classes=num_classes, shape=shape, denoiser=denoiser)
    return Target(model, name, with_code(name), sigma, shape, num_classes, weights_digest(model))


def check_target(name: str, *, weights: Path | None, normalise: str | None) -> None:
    """Refuse what names no model, and settings that do not belong to the model it names."""
    if in_zoo(name):
        zoo_file(name)  # refuses an unknown name
    elif weights is not None and (name in MODELS or names_a_function(name)):
        return
    if graph_kind(name):
        if weights is not None:
            raise Mistake(f"weights must be left out for {name}, which has its own, got {weights}")
        return
    if is_trained(name):
        remedy = ""
        if Path(name).is_file():
            remedy = f"; for weights alone name their network and add --weights {name}"
        for setting, value in (("weights", weights), ("normalise", normalise)):
            if value is not None:
                raise Mistake(
                    f"{setting} must be left out for {name}, which has its own, got {value}{remedy}"
                )
    elif name in MODELS:
        raise Mistake(f"weights must be given to certify {name}; add --weights FILE")
    elif weights is None and not names_a_function(name):
        raise Mistake(
            f"no run or model at {name}{nearest_model(name)}; name a run folder, a model file or "
            "package.module:function"
        )


def is_trained(name: str) -> bool:
    """Whether a name is that of a run, of a model file or of a model of the zoo."""
    return in_zoo(name) or (Path(name).exists() and graph_kind(name) is None)


def trained_target(name: str, *, code: Collection[str] = ()) -> tuple[Target, ModelCard]:
    """The model of a run folder, of a model file or of the zoo, and what its file says of it."""
    loaded = open_model(name, code=code)
    card = loaded.card
    target = Target(
        loaded.model,
        name,
        with_code(card.architecture),
        card.sigma,
        card.shape,
        len(card.classes),
        loaded.sha256,
        loaded.file,
    )
    return target, card


def at_sigma(target: Target, sigma: float | None) -> Target:
    """A trained target with the noise that is asked for; if it is another, certificates say so."""
    if sigma in (None, target.sigma):
        return target
    architecture = f"{target.architecture}{TRAINED_AT}{target.sigma:g}"
    return replace(target, sigma=sigma, architecture=architecture)


def _check_data(card: ModelCard, name: str, classes: Sequence[str]) -> None:
    """Refuse a data set of other classes than the model's."""
    if len(classes) != len(card.classes):
        raise Mistake(
            f"{name} knows {len(card.classes)} classes, the data set has {len(classes)}; "
            "choose another --dataset"
        )
    for i, (known, given) in enumerate(zip(card.classes, classes, strict=True)):
        if known != given:
            raise Mistake(
                f"class {i} must be {known}, as {name} was trained, the data set has {given}; "
                "choose another --dataset"
            )


def weights_digest(model: nn.Module) -> str:
    """The SHA-256 of a model's tensors, for models that come without a file."""
    return digest_of_tensors(model.state_dict())
