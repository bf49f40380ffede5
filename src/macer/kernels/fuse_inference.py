"""A traced network rewritten for certification in bf16 on a GPU: fewer and larger kernels."""

import copy
import operator
from typing import Any

from torch import fx, nn

from macer.kernels.agreement import agree
from macer.kernels.graph import (
    Layers,
    called_and_read_once,
    is_call_of,
    is_max_pool2x2,
    is_relu,
    suits_projection,
)
from macer.kernels.layers import ConvolutionReLU, Projection


def fused(graph: fx.GraphModule, shape: tuple[int, int, int]) -> fx.GraphModule:
    """The network with fewer kernels; itself where that is another function."""
    rewritten = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    _fuse(rewritten)
    return rewritten if agree(graph, rewritten, shape, tolerance=0.03) else graph


def _fuse(graph: fx.GraphModule) -> None:
    """Replace relu(conv(x) [+ shortcut]), max_pool2d(…, 2) of it, and strided 1×1 convolutions."""
    layers: Layers = dict(graph.named_modules())
    relus = [node for node in graph.graph.nodes if is_relu(node, layers)]
    for relu in relus:
        _move_before_pooling(graph, layers, relu)
        _fuse_relu(graph, layers, relu)
    graph.graph.eliminate_dead_code()
    for node in list(graph.graph.nodes):
        if is_max_pool2x2(node, layers):
            _fuse_pooling(graph, layers, node)
        elif is_call_of(node, layers, nn.Conv2d) and suits_projection(layers[node.target]):
            graph.set_submodule(node.target, Projection(layers[node.target]))
    graph.recompile()


def _move_before_pooling(graph: fx.GraphModule, layers: Layers, relu: Any) -> None:
    """Make relu(max_pool2d(conv(x), 2)) max_pool2d(relu(conv(x)), 2), the same function."""
    pooling = relu.args[0]
    if not (is_max_pool2x2(pooling, layers) and len(pooling.users) == 1):
        return
    convolution = pooling.args[0]
    if _is_fusible(graph, layers, convolution):
        relu.replace_all_uses_with(pooling)
        relu.update_arg(0, convolution)
        pooling.update_arg(0, relu)
        pooling.prepend(relu)


def _fuse_pooling(graph: fx.GraphModule, layers: Layers, pooling: Any) -> None:
    """Let the convolution before it do the pooling."""
    source = pooling.args[0]
    if is_call_of(source, layers, ConvolutionReLU) and called_and_read_once(graph, source):
        layers[source.target].pool = 2
        pooling.replace_all_uses_with(source)
        graph.graph.erase_node(pooling)


def _fuse_relu(graph: fx.GraphModule, layers: Layers, relu: Any) -> None:
    """Let the convolution before it add the shortcut, if there is one, and take the ReLU."""
    source, shortcut = relu.args[0], None
    if source.target is operator.add and len(source.users) == 1:
        source, shortcut = source.args
        if not _is_fusible(graph, layers, source):
            source, shortcut = shortcut, source
    if not _is_fusible(graph, layers, source):
        return
    name = str(source.target)
    graph.set_submodule(name, ConvolutionReLU(layers[name]))
    layers[name] = graph.get_submodule(name)
    # At the place of the ReLU, where the shortcut is known.
    with graph.graph.inserting_before(relu):
        arguments = (source.args[0],) if shortcut is None else (source.args[0], shortcut)
        relu.replace_all_uses_with(graph.graph.call_module(name, arguments))


def _is_fusible(graph: fx.GraphModule, layers: Layers, node: Any) -> bool:
    """Whether the node is a plain convolution and its result is read once."""
    if not (is_call_of(node, layers, nn.Conv2d) and called_and_read_once(graph, node)):
        return False
    layer = layers[node.target]
    zeros = layer.padding_mode == "zeros" and isinstance(layer.padding, tuple)
    return zeros and layer.groups == 1
