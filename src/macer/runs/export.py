"""Model files of half the size: weights of two or more dimensions in float16."""

import hashlib
from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from macer.models.graph_files import GRAPHS
from macer.models.weights import Tensors
from macer.runs.model_file import model_bytes
from macer.runs.trained_model import load_model, model_file
from macer.runs.zoo import in_zoo
from macer.system.errors import Mistake
from macer.system.files import write_file

MOST = torch.finfo(torch.float16).max  # 65504


def export_model(
    target: Path | str, out: Path, *, overwrite: bool = False, code: Collection[str] = ()
) -> str:
    """Write the model of a run, a model file or zoo:NAME, rounded; return the file's SHA-256.

    The card is kept. What is loaded from the file is the rounded model, in the network's own
    float32, and certificates bind the file's SHA-256: those of the target are not this file's.

    Args:
        code: modules that the target may name, see `load_model`.
    """
    _check_out(model_file(target), out, overwrite=overwrite)
    model, card = load_model(target, code=code)
    if card.architecture in GRAPHS:
        raise Mistake(
            f"{target} must hold weights to be rounded, got a file of {card.architecture}; copy "
            f"{model_file(target)}, which is complete"
        )
    content = model_bytes(in_float16(model), card)
    write_file(out, content)
    return hashlib.sha256(content).hexdigest()


def in_float16(model: nn.Module) -> Tensors:
    """A model's tensors, its weights of two or more dimensions rounded to float16.

    Biases, batch-norm and buffers stay as they are: they are small, and a variance far below 1
    has few digits in float16.
    """
    weights = {
        name
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.dim() >= 2 and parameter.is_floating_point()
    }
    tensors: Tensors = model.state_dict()
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            _check_range(name, tensor.abs().max().item(), weight=name in weights)
    return {name: tensor.half() if name in weights else tensor for name, tensor in tensors.items()}


def _check_range(name: str, largest: float, *, weight: bool) -> None:
    """Refuse what float16 turns into infinity, and NaN."""
    # Every comparison with NaN is false.
    if not largest <= (MOST if weight else torch.finfo(torch.float64).max):
        requirement = f"within ±{MOST:g}, the range of float16," if weight else "finite"
        raise Mistake(f"{name} must be {requirement} to be exported, got {largest:g}; train again")


def _check_out(source: Path, out: Path, *, overwrite: bool) -> None:
    if in_zoo(out):
        raise Mistake(f"out must be a file to write, got the zoo model {out}")
    if out.suffix != ".safetensors":
        raise Mistake(f"out must end in .safetensors, got {out}")
    if out.is_file() and out.samefile(source):
        raise Mistake(f"out must not be the model to be exported, got {out}; choose another --out")
    if out.is_file() and not overwrite:
        raise Mistake(f"{out} exists already; choose another --out or add --overwrite")
