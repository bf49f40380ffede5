"""A network as training runs it on a GPU in bf16: its own layers, in fewer and larger kernels."""

import operator
from typing import Any

from torch import fx, nn

from macer.kernels.agreement import agree
from macer.kernels.graph import (
    Layers,
    called_once,
    is_call_of,
    is_max_pool2x2,
    is_relu,
    suits_conv3x3,
    suits_stem,
)
from macer.kernels.layers import (
    Conv3x3Layer,
    NormLayer,
    PaddedLayer,
    StemLayer,
    pool_relu,
)
from macer.kernels.padding import find_paddings


def for_training(model: nn.Module, shape: tuple[int, int, int]) -> nn.Module:
    """A network that shares the model's parameters and buffers and computes the same function.

    Batch-norm, the shortcut added to it and the ReLU after it become one layer, as 2×2 pooling
    and ReLU do; convolutions that cuDNN is slow at are computed in other ways; numbers of channels
    that suit no tensor core are filled up with zeros. A model that torch.fx cannot trace, or whose
    trace is another function, is returned as it is.

    Args:
        model: on the device it is to be trained on; moving it later would separate the two.
        shape: (channels, height, width)
    """
    try:
        graph = fx.symbolic_trace(model)
    except Exception:  # whatever the user's code raises on a symbol
        return model
    _fuse(graph)
    modes = [(part, part.training) for part in (*model.modules(), *graph.modules())]
    same = agree(model.eval(), graph.eval(), shape, tolerance=1e-3)
    for part, training in modes:
        part.training = training
    return graph if same else model


def _fuse(graph: fx.GraphModule) -> None:
    layers: Layers = dict(graph.named_modules())
    for node in list(graph.graph.nodes):
        if is_call_of(node, layers, nn.BatchNorm2d):
            if _is_plain_norm(graph, node, layers[node.target]):
                _fuse_norm(graph, layers, node)
        elif is_call_of(node, layers, nn.Conv2d):
            _replace_convolution(graph, node.target, layers[node.target])
    for name, padding in find_paddings(graph).items():
        graph.set_submodule(name, PaddedLayer(layers[name], padding))
    for node in list(graph.graph.nodes):
        if is_max_pool2x2(node, layers):
            _fuse_pool(graph, layers, node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _replace_convolution(graph: fx.GraphModule, name: str, layer: nn.Conv2d) -> None:
    """Replace a convolution that cuDNN is slow at."""
    if suits_conv3x3(layer) and layer.bias is None:
        graph.set_submodule(name, Conv3x3Layer(layer))
    elif suits_stem(layer) and layer.bias is None and layer.out_channels % 8 == 0:
        graph.set_submodule(name, StemLayer(layer))


def _fuse_norm(graph: fx.GraphModule, layers: Layers, norm: Any) -> None:
    """Let the norm compute the addition and the ReLU that follow it, where they do."""
    last, arguments = norm, [norm.args[0]]
    user = _only_user(norm)
    if user is not None and user.target is operator.add:
        others = [argument for argument in user.args if argument is not norm]
        if len(others) == 1 and isinstance(others[0], fx.Node) and _relu_follows(user, layers):
            last, arguments = user, [norm.args[0], others[0]]
    relu = _relu_follows(last, layers)
    graph.set_submodule(norm.target, NormLayer(layers[norm.target], relu=relu))
    if relu:
        last = _only_user(last)
    # At the place of the last, where the shortcut is known.
    with graph.graph.inserting_before(last):
        fused = graph.graph.call_module(norm.target, tuple(arguments))
    last.replace_all_uses_with(fused)


def _fuse_pool(graph: fx.GraphModule, layers: Layers, pool: fx.Node) -> None:
    """Let the pooling take the ReLU after it."""
    if _relu_follows(pool, layers):
        relu = _only_user(pool)
        with graph.graph.inserting_before(relu):
            relu.replace_all_uses_with(graph.graph.call_function(pool_relu, (pool.args[0],)))


def _only_user(node: Any) -> Any:
    """The node that reads this one, None if there are none or several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def _relu_follows(node: Any, layers: Layers) -> bool:
    """Whether a ReLU, and nothing else, reads the node."""
    user = _only_user(node)
    return user is not None and is_relu(user, layers)


def _is_plain_norm(graph: fx.GraphModule, node: fx.Node, norm: Any) -> bool:
    """Whether our kernels compute this norm: it has weights, averages and 8, 16, … channels."""
    statistics = norm.affine and norm.track_running_stats and norm.momentum is not None
    return statistics and norm.num_features % 8 == 0 and called_once(graph, node)
