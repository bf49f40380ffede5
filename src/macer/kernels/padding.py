"""Channels in numbers that suit tensor cores: zeros are added where they would stand idle."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from macer.kernels.graph import Layers, called_once, calls

ELEMENTWISE = (nn.ReLU, nn.Identity, nn.Dropout, nn.Dropout2d)
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)

# The names of a layer's numbers of inputs and outputs.
SIZES = {
    nn.Conv2d: ("in_channels", "out_channels"),
    nn.Linear: ("in_features", "out_features"),
}


@dataclass
class Room:
    """What is added to a layer."""

    channels: int = 0  # of its input, each with as many pixels as the others
    inputs: int = 0  # more of those
    outputs: int = 0  # more outputs


def pad_channels(graph: fx.GraphModule) -> bool:
    """Give layers roomy numbers of outputs, and those that read them as many inputs.

    Nothing reads the added outputs but through weights of 0, so the function stays the same.
    Returns whether any layer changed.
    """
    layers: Layers = dict(graph.named_modules())
    rooms = room_for(graph)
    for name, room in rooms.items():
        layer = layers[name]
        weight, bias = widened(layer.weight.detach(), layer.bias, room)
        layer.weight = nn.Parameter(weight)
        layer.bias = None if bias is None else nn.Parameter(bias.detach())
        for size, field in zip(weight.shape, reversed(SIZES[type(layer)]), strict=False):
            setattr(layer, field, size)
    return bool(rooms)


def room_for(graph: fx.GraphModule) -> dict[str, Room]:
    """The room to add to layers, by their names.

    A layer whose outputs are read by anything else than known layers stays as it is.
    """
    layers: Layers = dict(graph.named_modules())
    rooms: defaultdict[str, Room] = defaultdict(Room)
    node: Any
    for node in graph.graph.nodes:
        kind = next((kind for kind in SIZES if _is_plain(graph, layers, node, kind)), None)
        if kind is None:
            continue
        outputs = len(layers[node.target].weight)
        more = roomy(outputs) - outputs
        readers = [*_readers(layers, node, flat=kind is nn.Linear)] if more else []
        if readers and all(_is_plain(graph, layers, *reader) for reader in readers):
            rooms[node.target].outputs = more
            for reader, _ in readers:
                room = rooms[str(reader.target)]
                room.channels, room.inputs = outputs, more
    return dict(rooms)


def roomy(channels: int) -> int:
    """8, 16, 32 or a multiple of 8 that holds so many channels.

    Tensor cores take 8 at a time. On an H200 cuDNN needs 1.45 ms for a 5×5 convolution with 24
    inputs, and .79 with 32.
    """
    return next((size for size in (8, 16, 32) if size >= channels), math.ceil(channels / 8) * 8)


def _is_plain(graph: fx.GraphModule, layers: Layers, node: Any, kind: type[nn.Module]) -> bool:
    """Whether the node is the only call of a layer whose weights are all there is to it."""
    if not (calls(node, layers, kind) and called_once(graph, node)):
        return False
    layer = layers[node.target]
    hooks = layer._forward_pre_hooks or layer._forward_hooks  # a weight-norm, say
    return not hooks and getattr(layer, "groups", 1) == 1


def _readers(
    layers: Layers, node: fx.Node, *, flat: bool
) -> Iterator[tuple[fx.Node, type[nn.Module]]]:
    """What reads the node's channels, and the kind of layer that it should be.

    Args:
        flat: whether the channels are the last dimension, alone or with the pixels of each.
    """
    for user in node.users:
        if _keeps_channels(layers, user, flat=flat):
            yield from _readers(layers, user, flat=flat)
        elif not flat and _flattens(layers, user):
            yield from _readers(layers, user, flat=True)
        else:
            yield user, nn.Linear if flat else nn.Conv2d


def _keeps_channels(layers: Layers, node: fx.Node, *, flat: bool) -> bool:
    functions = (F.relu, torch.relu) if flat else (F.relu, torch.relu, F.max_pool2d)
    kinds = ELEMENTWISE if flat else ELEMENTWISE + POOLS
    return node.target in functions or any(calls(node, layers, kind) for kind in kinds)


def _flattens(layers: Layers, node: Any) -> bool:
    """Whether the node joins all dimensions but the first."""
    if calls(node, layers, nn.Flatten):
        layer = layers[node.target]
        return bool(layer.start_dim == 1 and layer.end_dim == -1)
    if node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten"):
        return (*node.args[1:], *node.kwargs.items()) in ((1,), (("start_dim", 1),))
    return False


def widened(weight: Tensor, bias: Tensor | None, room: Room) -> tuple[Tensor, Tensor | None]:
    """A layer's weight and bias with zeros for what is added."""
    if room.inputs:
        by_channel = weight.reshape(len(weight), room.channels, -1)
        wide = F.pad(by_channel, (0, 0, 0, room.inputs))
        weight = wide.reshape(len(weight), -1, *weight.shape[2:])
    if room.outputs:
        weight = F.pad(weight, (0, 0) * (weight.dim() - 1) + (0, room.outputs))
        bias = None if bias is None else F.pad(bias, (0, room.outputs))
    return weight, bias


class WideLayer(nn.Module):
    """A layer in training, whose own weight is given room anew in every pass."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, room: Room) -> None:
        super().__init__()
        self.layer, self.room = layer, room

    def forward(self, x: Tensor) -> Tensor:
        """Activations, with more channels."""
        weight, bias = widened(self.layer.weight, self.layer.bias, self.room)
        if isinstance(self.layer, nn.Linear):
            return F.linear(x, weight, bias)
        y: Tensor = self.layer._conv_forward(x, weight, bias)
        return y
