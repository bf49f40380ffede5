"""A network as training runs it on a GPU in bf16: its own layers, in fewer and larger kernels."""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from macer.kernels.agreement import agree
from macer.kernels.graph import Layers, called_once, calls, halves, is_relu
from macer.kernels.kinds import is_pairs, is_projection, is_stem
from macer.kernels.padding import WideLayer, room_for
from macer.kernels.projection import Projection


def for_training(model: nn.Module, shape: tuple[int, int, int]) -> nn.Module:
    """A network that shares the model's parameters and buffers and computes the same function.

    Batch-norm, the shortcut added to it and the ReLU after it become one layer, as 2×2 pooling
    and ReLU do; convolutions that cuDNN is slow at are computed in other ways; numbers of channels
    that suit no tensor core are filled up with zeros. A model that torch.fx cannot take apart, or
    that is another function then, is returned as it is.

    Args:
        model: where it is to be trained; to move it afterwards would part the two.
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
        if calls(node, layers, nn.BatchNorm2d) and _is_plain_norm(graph, node, layers[node.target]):
            _fuse_norm(graph, layers, node)
        elif calls(node, layers, nn.Conv2d):
            _replace_convolution(graph, node.target, layers[node.target])
    for name, room in room_for(graph).items():
        graph.set_submodule(name, WideLayer(layers[name], room))
    for node in list(graph.graph.nodes):
        if halves(node, layers):
            _fuse_pool(graph, layers, node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _replace_convolution(graph: fx.GraphModule, name: str, layer: nn.Conv2d) -> None:
    """Give a convolution that cuDNN is slow at another way to be computed."""
    for suits, kind in (
        (_is_narrow, NarrowConv),
        (_is_bare_stem, StemConv),
        (is_projection, Projection),
    ):
        if suits(layer):
            graph.set_submodule(name, kind(layer))


def _fuse_norm(graph: fx.GraphModule, layers: Layers, norm: Any) -> None:
    """Let the norm take on the addition and the ReLU after it, as far as they follow."""
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
    # In the place of the last, where the shortcut is known.
    with graph.graph.inserting_before(last):
        fused = graph.graph.call_module(norm.target, tuple(arguments))
    last.replace_all_uses_with(fused)


def _fuse_pool(graph: fx.GraphModule, layers: Layers, pool: fx.Node) -> None:
    """Let the pooling take on the ReLU after it."""
    if _relu_follows(pool, layers):
        relu = _only_user(pool)
        with graph.graph.inserting_before(relu):
            relu.replace_all_uses_with(graph.graph.call_function(pool_relu, (pool.args[0],)))


def ours_apply(x: Tensor) -> bool:
    """Whether our kernels stand in for torch's: they compute in bf16, as autocast has layers do."""
    return x.is_cuda and torch.is_autocast_enabled("cuda")


def pool_relu(x: Tensor) -> Tensor:
    """ReLU(max_pool2d(x, 2))."""
    even = x.shape[1] % 8 == x.shape[2] % 2 == x.shape[3] % 2 == 0
    if ours_apply(x) and even:
        from macer.kernels.pooling import HalvedReLU

        y: Tensor = HalvedReLU.apply(x)  # type: ignore[no-untyped-call]
        return y
    return F.relu(F.max_pool2d(x, 2))


def _only_user(node: Any) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _relu_follows(node: Any, layers: Layers) -> bool:
    """Whether a ReLU, and nothing else, reads the node."""
    user = _only_user(node)
    return user is not None and is_relu(user, layers)


def _is_plain_norm(graph: fx.GraphModule, node: fx.Node, norm: Any) -> bool:
    statistics = norm.affine and norm.track_running_stats and norm.momentum is not None
    return statistics and norm.num_features % 8 == 0 and called_once(graph, node)


def _is_narrow(layer: nn.Conv2d) -> bool:
    return is_pairs(layer) and layer.bias is None


def _is_bare_stem(layer: nn.Conv2d) -> bool:
    return is_stem(layer) and layer.bias is None and layer.out_channels % 8 == 0


class NormLayer(nn.Module):
    """ReLU(norm(x) + shortcut), either part of which may be missing."""

    def __init__(self, norm: nn.BatchNorm2d, *, relu: bool) -> None:
        super().__init__()
        self.norm, self.relu = norm, relu

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Activations."""
        norm = self.norm
        if self.training and ours_apply(x):
            from macer.kernels.batchnorm import NormReLU

            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.add_(1)
            fused: Tensor = NormReLU.apply(x, shortcut, norm.weight, norm.bias, norm, self.relu)  # type: ignore[no-untyped-call]
            return fused
        trained = norm.weight.requires_grad or norm.bias.requires_grad
        if ours_apply(x) and not (self.training or trained):  # under attack
            from macer.kernels.batchnorm import FixedNormReLU

            fixed: Tensor = FixedNormReLU.apply(x, shortcut, norm, self.relu)  # type: ignore[no-untyped-call]
            return fixed
        y: Tensor = norm(x)
        y = y if shortcut is None else y + shortcut
        return F.relu(y) if self.relu else y


class NarrowConv(nn.Module):
    """A 3×3 convolution of few channels."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations."""
        if ours_apply(x) and x.shape[3] % 2 == 0:
            from macer.kernels.narrow import NarrowConvolution

            y: Tensor = NarrowConvolution.apply(x, self.convolution.weight)  # type: ignore[no-untyped-call]
            return y
        result: Tensor = self.convolution(x)
        return result


class StemConv(nn.Module):
    """A convolution of few inputs."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Activations."""
        if ours_apply(x) and not x.requires_grad:  # an attack wants the images' gradient
            from macer.kernels.narrow import stem

            return stem(x, self.convolution.weight, padding=int(self.convolution.padding[0]))
        result: Tensor = self.convolution(x)
        return result
