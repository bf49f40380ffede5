"""Constants that are added to a network's logits, in the bias of its last layer."""

import copy

import torch
from torch import Tensor, nn

from macer.models.ensembles import Ensemble
from macer.models.modes import evaluating
from macer.system.errors import Mistake

_TOLERANCE = 1e-3  # of the logits' size: sums are rounded otherwise


def with_offsets(model: nn.Sequential, offsets: Tensor, images: Tensor, *, name: str) -> nn.Module:
    """A copy of the model whose logits are u_c(x) + b_c.

    Args:
        offsets: (classes,), b.
        images: (images, …) in the form that the model takes; it is tried on them.
        name: of the model, for messages.
    """
    _last_biases(model, len(offsets), name)  # refused before it is copied, which not all can be
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for bias in _last_biases(changed, len(offsets), name):
            bias.add_(offsets)
        with evaluating(model, changed):
            before, after = model(images), changed(images)
    size = before.abs().max() + offsets.abs().max()
    if not (after - before - offsets).abs().max() <= _TOLERANCE * size:
        raise Mistake(_requirement(name, "one whose last linear layer does not give the logits"))
    return changed


def _last_biases(model: nn.Sequential, classes: int, name: str) -> list[Tensor]:
    """The bias of the last linear layer with one output per class; of an ensemble, one each."""
    network = model[-1]
    parts = list(network.members) if isinstance(network, Ensemble) else [model]
    biases: list[Tensor] = []
    for part in parts:
        layers = [
            layer
            for layer in part.modules()
            if isinstance(layer, nn.Linear) and layer.out_features == classes
        ]
        if not layers or layers[-1].bias is None:
            raise Mistake(_requirement(name, "one without such a layer"))
        biases.append(layers[-1].bias)
    return biases


def _requirement(name: str, got: str) -> str:
    return (
        f"{name} must be a network that ends in a linear layer with a bias for each class, got "
        f"{got}; wrap it in a function of your own that adds the offsets, and pack that"
    )
