"""What the nodes of a traced network are."""

from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

Layers = dict[str, Any]  # of a traced network, by the names its nodes call them


def has_hooks(model: nn.Module) -> bool:
    """Whether a part of the model runs functions of others around its forward method."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def is_relu(node: Any, layers: Layers) -> bool:
    """Whether the node is a ReLU, a function or a layer."""
    return node.target in (F.relu, torch.relu) or calls(node, layers, nn.ReLU)


def calls(node: Any, layers: Layers, kind: type[nn.Module]) -> bool:
    """Whether the node is a call of a layer of this very kind."""
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return is_call and type(layers[node.target]) is kind


def halves(node: Any, layers: Layers) -> bool:
    """Whether the node is max_pool2d(x, 2), a function or a layer, with nothing else to it."""
    settings: dict[str, Any]
    if calls(node, layers, nn.MaxPool2d):
        settings = vars(layers[node.target])  # type: ignore[assignment]
    elif node.target is F.max_pool2d and len(node.args) == 2:  # as every trace has it
        settings = {"kernel_size": node.args[1], **node.kwargs}
    else:
        return False
    usual = {"padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    return (
        _is_both(settings["kernel_size"], 2)
        and (settings.get("stride") is None or _is_both(settings["stride"], 2))
        and all(_is_both(settings.get(name, value), value) for name, value in usual.items())
    )


def _is_both(value: Any, wanted: int) -> bool:
    """Whether a setting for height and width is this number for both."""
    return value in (wanted, (wanted, wanted), [wanted, wanted])


def alone(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether the layer is called once and its result used once: only then can it take more on."""
    return called_once(graph, node) and len(node.users) == 1


def called_once(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether no other node calls the layer: only then are its weights the node's own."""
    others = [other for other in graph.graph.nodes if other.target == node.target]
    return others == [node]
