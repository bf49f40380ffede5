"""Fewer and larger kernels for a traced network in bf16 on a GPU."""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from macer.kernels import convolution as ours
from macer.kernels.graph import Layers, alone, calls, halves, is_relu
from macer.kernels.kinds import is_pairs, is_projection, is_stem
from macer.kernels.pooling import halved
from macer.kernels.projection import Projection


def fuse(graph: fx.GraphModule) -> None:
    """Replace relu(conv(x) [+ shortcut]), max_pool2d(…, 2) of it, and strided 1×1 convolutions."""
    layers: Layers = dict(graph.named_modules())
    relus = [node for node in graph.graph.nodes if is_relu(node, layers)]
    for relu in relus:
        _move_before_pooling(graph, layers, relu)
        _fuse_relu(graph, layers, relu)
    graph.graph.eliminate_dead_code()
    for node in list(graph.graph.nodes):
        if halves(node, layers):
            _fuse_pooling(graph, layers, node)
        elif calls(node, layers, nn.Conv2d) and is_projection(layers[node.target]):
            graph.set_submodule(node.target, Projection(layers[node.target]))
    graph.recompile()


def _move_before_pooling(graph: fx.GraphModule, layers: Layers, relu: Any) -> None:
    """Make relu(max_pool2d(conv(x), 2)) max_pool2d(relu(conv(x)), 2), the same function."""
    pooling = relu.args[0]
    if not (halves(pooling, layers) and len(pooling.users) == 1):
        return
    convolution = pooling.args[0]
    if _fusible(graph, layers, convolution):
        relu.replace_all_uses_with(pooling)
        relu.update_arg(0, convolution)
        pooling.update_arg(0, relu)
        pooling.prepend(relu)


def _fuse_pooling(graph: fx.GraphModule, layers: Layers, pooling: Any) -> None:
    source = pooling.args[0]
    if calls(source, layers, ConvolutionReLU) and alone(graph, source):
        layers[source.target].pool = 2
        pooling.replace_all_uses_with(source)
        graph.graph.erase_node(pooling)


def _fuse_relu(graph: fx.GraphModule, layers: Layers, relu: Any) -> None:
    source, shortcut = relu.args[0], None
    if source.target is operator.add and len(source.users) == 1:
        source, shortcut = source.args
        if not _fusible(graph, layers, source):
            source, shortcut = shortcut, source
    if not _fusible(graph, layers, source):
        return
    name = str(source.target)
    graph.set_submodule(name, ConvolutionReLU(layers[name]))
    layers[name] = graph.get_submodule(name)
    with graph.graph.inserting_before(relu):
        arguments = (source.args[0],) if shortcut is None else (source.args[0], shortcut)
        relu.replace_all_uses_with(graph.graph.call_module(name, arguments))


def _fusible(graph: fx.GraphModule, layers: Layers, node: Any) -> bool:
    """Whether the node is a plain convolution that nothing else reads."""
    if not (calls(node, layers, nn.Conv2d) and alone(graph, node)):
        return False
    layer = layers[node.target]
    zeros = layer.padding_mode == "zeros" and isinstance(layer.padding, tuple)
    return zeros and layer.groups == 1


class ConvolutionReLU(nn.Module):
    """max_pool2d(ReLU(convolution(x) + shortcut), pool): our kernels for few channels, or cuDNN's.

    Args:
        convolution: without groups, padded with zeros.
    """

    pool = 1  # or 2

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        bias: Tensor | None
        weight, bias = convolution.weight.detach(), convolution.bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias, self.bias32 = bias, bias.float()
        self.where: Any = (convolution.stride, convolution.padding, convolution.dilation, 1)
        self.pairs = ours.pairs_weight(weight) if is_pairs(convolution) else None
        self.stem = ours.stem_weight(weight, self.bias32) if is_stem(convolution) else None

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Activations, channels last."""
        if self.stem is not None and shortcut is None:
            size, padding = self.weight.shape[2], self.where[1][0]
            return ours.stem_relu(
                x, *self.stem, outputs=len(self.weight), size=size, padding=padding, pool=self.pool
            )
        y = self._convolved(x, shortcut)
        return y if self.pool == 1 else halved(y)

    def _convolved(self, x: Tensor, shortcut: Tensor | None) -> Tensor:
        if self.pairs is not None and x.shape[3] % 2 == 0:
            return ours.pairs_relu(x, self.pairs, self.bias32, shortcut)
        if shortcut is None:
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self.where)
        return torch.cudnn_convolution_add_relu(
            x, self.weight, shortcut, 1.0, self.bias, *self.where
        )
