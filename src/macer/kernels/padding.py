"""Numbers of channels that suit tensor cores: channels of zeros are added to the others."""

import copy
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from macer.kernels.agreement import agree
from macer.kernels.graph import Layers, called_once, is_call_of

ELEMENTWISE = (nn.ReLU, nn.Identity, nn.Dropout, nn.Dropout2d)
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)

# Where a layer keeps its numbers of inputs and outputs.
SIZES = {
    nn.Conv2d: ("in_channels", "out_channels"),
    nn.Linear: ("in_features", "out_features"),
}


@dataclass
class Padding:
    """What is added to a layer."""

    inputs_per_channel: int = 0  # weights that read one channel: a tap each, or a pixel each
    more_inputs: int = 0  # channels added to those that it reads
    more_outputs: int = 0  # channels added to those that it writes


def padded(graph: fx.GraphModule, shape: tuple[int, int, int]) -> fx.GraphModule:
    """A copy of the network with channels of zeros; itself where that is another function."""
    copied = copy.deepcopy(graph)
    changed = pad_channels(copied)
    return copied if changed and agree(graph, copied, shape, tolerance=1e-3) else graph


def pad_channels(graph: fx.GraphModule) -> bool:
    """Pad the outputs of layers, and the inputs of the layers that read them.

    The added outputs are read through weights of 0 only, so the function stays the same. Returns
    whether any layer changed.
    """
    layers: Layers = dict(graph.named_modules())
    paddings = find_paddings(graph)
    for name, padding in paddings.items():
        layer = layers[name]
        weight, bias = padded_parameters(layer.weight.detach(), layer.bias, padding)
        layer.weight = nn.Parameter(weight)
        layer.bias = None if bias is None else nn.Parameter(bias.detach())
        for size, field in zip(weight.shape, reversed(SIZES[type(layer)]), strict=False):
            setattr(layer, field, size)
    return bool(paddings)


def find_paddings(graph: fx.GraphModule) -> dict[str, Padding]:
    """What to add to which layers, by their names.

    A layer stays as it is if anything but a convolution or a linear layer reads its outputs.
    """
    layers: Layers = dict(graph.named_modules())
    paddings: defaultdict[str, Padding] = defaultdict(Padding)
    node: Any
    for node in graph.graph.nodes:
        kind = next((kind for kind in SIZES if _is_plain(graph, layers, node, kind)), None)
        if kind is None:
            continue
        outputs = len(layers[node.target].weight)
        more = padded_size(outputs) - outputs
        readers = [*_readers(layers, node, flat=kind is nn.Linear)] if more else []
        if readers and all(_is_plain(graph, layers, *reader) for reader in readers):
            paddings[node.target].more_outputs = more
            for reader, _ in readers:
                name = str(reader.target)
                paddings[name].inputs_per_channel = layers[name].weight[0].numel() // outputs
                paddings[name].more_inputs = more
    return dict(paddings)


def padded_size(channels: int) -> int:
    """The number of channels to pad to: 8, 16, 32 or a multiple of 8.

    Tensor cores take 8 at a time. 24 are padded to 32: on an H200 cuDNN needs 1.45 ms for a 5×5
    convolution with 24 inputs, and .79 with 32.
    """
    return next((size for size in (8, 16, 32) if size >= channels), math.ceil(channels / 8) * 8)


def _is_plain(graph: fx.GraphModule, layers: Layers, node: Any, kind: type[nn.Module]) -> bool:
    """Whether the node is the only call of such a layer, and nothing but its weights counts."""
    if not (is_call_of(node, layers, kind) and called_once(graph, node)):
        return False
    layer = layers[node.target]
    hooks = layer._forward_pre_hooks or layer._forward_hooks  # such as weight-norm's
    return not hooks and getattr(layer, "groups", 1) == 1


def _readers(
    layers: Layers, node: fx.Node, *, flat: bool
) -> Iterator[tuple[fx.Node, type[nn.Module]]]:
    """The nodes that read this one's channels, each with the type of layer that it must call.

    Args:
        flat: whether the channels are the last dimension, alone or with their pixels.
    """
    for user in node.users:
        if _keeps_channels(layers, user, flat=flat):
            yield from _readers(layers, user, flat=flat)
        elif not flat and _flattens(layers, user):
            yield from _readers(layers, user, flat=True)
        else:
            yield user, nn.Linear if flat else nn.Conv2d


def _keeps_channels(layers: Layers, node: fx.Node, *, flat: bool) -> bool:
    """Whether the node computes each channel from that channel alone."""
    functions = (F.relu, torch.relu) if flat else (F.relu, torch.relu, F.max_pool2d)
    kinds = ELEMENTWISE if flat else ELEMENTWISE + POOLS
    return node.target in functions or any(is_call_of(node, layers, kind) for kind in kinds)


def _flattens(layers: Layers, node: Any) -> bool:
    """Whether the node joins all dimensions but the first."""
    if is_call_of(node, layers, nn.Flatten):
        layer = layers[node.target]
        return bool(layer.start_dim == 1 and layer.end_dim == -1)
    if node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten"):
        return (*node.args[1:], *node.kwargs.items()) in ((1,), (("start_dim", 1),))
    return False


def padded_parameters(
    weight: Tensor, bias: Tensor | None, padding: Padding
) -> tuple[Tensor, Tensor | None]:
    """A layer's weight and bias with zeros for what is added."""
    if padding.more_inputs:
        # A linear layer reads all pixels of a channel, then those of the next.
        by_channel = weight.reshape(len(weight), -1, padding.inputs_per_channel)
        padded = F.pad(by_channel, (0, 0, 0, padding.more_inputs))
        weight = padded.reshape(len(weight), -1, *weight.shape[2:])
    if padding.more_outputs:
        weight = F.pad(weight, (0, 0) * (weight.dim() - 1) + (0, padding.more_outputs))
        bias = None if bias is None else F.pad(bias, (0, padding.more_outputs))
    return weight, bias
