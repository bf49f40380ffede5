"""Which networks may be traced, what the nodes of a traced one are, and which kernel suits them.

torch.fx calls a network's code with a symbol in place of the images. Torch's functions know
symbols. Compiled code of others, such as onnxruntime, may take one for an array and end the
process. So the code is first run on real images, and watched: a network is not traced if a value
leaves torch, or if it uses a tensor that torch's functions have not made.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Layers = dict[str, Any]  # the layers of a traced network, by the names that its nodes call

CONV3X3_CHANNELS = (16, 32)  # numbers of channels that conv3x3.py has tiles for

# Functions that give a tensor's values, or their address, to code outside of torch. Others, such
# as numpy, are known by the type of what they return.
WAYS_OUT = {"item", "tolist", "data_ptr", "__bool__", "__int__", "__index__"}

# Functions that make a tensor of values from outside.
WAYS_IN = {
    "tensor",
    "new_tensor",
    "as_tensor",
    "asarray",
    "from_numpy",
    "frombuffer",
    "from_dlpack",
}

# What a function may return beside tensors: what describes one.
DESCRIPTIONS = (int, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


def made_of_torch(model: nn.Module, images: Tensor) -> bool:
    """Whether all that the model does with the images goes through functions of torch."""
    watch = _Watch([images, *tensors_of(model)])
    try:
        with torch.inference_mode(), watch:
            answer = model(images)
    except Exception:  # whatever the user's code raises
        return False
    return not watch.values_left and watch.knows(answer)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """The parameters and buffers of a model, and other tensors that its parts hold."""
    for part in model.modules():
        for value in _leaves(list(vars(part).values())):
            if isinstance(value, Tensor):
                yield value
        if isinstance(part, torch.jit.ScriptModule):  # it keeps them elsewhere
            yield from part.parameters(recurse=False)
            yield from part.buffers(recurse=False)


def _leaves(values: Any) -> Iterator[Any]:
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from _leaves(value)
    else:
        yield values


class _Watch(TorchFunctionMode):
    """Sees each call of torch's functions, and whether values leave torch or come from outside."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.values_left = False
        self._known = {id(tensor): tensor for tensor in tensors}  # kept: ids are reused

    def knows(self, values: Any) -> bool:
        """Whether all tensors among the values come from torch's functions."""
        tensors = (value for value in _leaves(values) if isinstance(value, Tensor))
        return all(id(tensor) in self._known for tensor in tensors)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.values_left |= name in WAYS_OUT or not self.knows([args, kwargs])
        for value in _leaves(result):
            if not isinstance(value, Tensor):
                self.values_left |= not isinstance(value, DESCRIPTIONS)
            elif name not in WAYS_IN:
                self._known[id(value)] = value
        return result


def is_call_of(node: Any, layers: Layers, kind: type[nn.Module]) -> bool:
    """Whether the node calls a layer of this very type, not of a subclass."""
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return is_call and type(layers[node.target]) is kind


def called_once(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether no other node calls the layer: only then may its weights change."""
    others = [other for other in graph.graph.nodes if other.target == node.target]
    return others == [node]


def called_and_read_once(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether one node calls the layer and one reads its result: only then may it compute more."""
    return called_once(graph, node) and len(node.users) == 1


def is_relu(node: Any, layers: Layers) -> bool:
    """Whether the node is a ReLU, a function or a layer."""
    return node.target in (F.relu, torch.relu) or is_call_of(node, layers, nn.ReLU)


def is_max_pool2x2(node: Any, layers: Layers) -> bool:
    """Whether the node is max_pool2d(x, 2), a function or a layer, without further settings."""
    settings: dict[str, Any]
    if is_call_of(node, layers, nn.MaxPool2d):
        settings = vars(layers[node.target])  # type: ignore[assignment]
    elif node.target is F.max_pool2d and len(node.args) == 2:  # as every trace has it
        settings = {"kernel_size": node.args[1], **node.kwargs}
    else:
        return False
    defaults = {"padding": 0, "dilation": 1, "ceil_mode": False, "return_indices": False}
    return (
        _is_both(settings["kernel_size"], 2)
        and (settings.get("stride") is None or _is_both(settings["stride"], 2))
        and all(_is_both(settings.get(name, value), value) for name, value in defaults.items())
    )


def _is_both(setting: Any, number: int) -> bool:
    """Whether a setting for height and width is this number for both."""
    return setting in (number, (number, number), [number, number])


def suits_conv3x3(layer: nn.Conv2d) -> bool:
    """A 3×3 convolution that keeps its few channels and the image's size."""
    channels = layer.in_channels == layer.out_channels and layer.in_channels in CONV3X3_CHANNELS
    return channels and _is_square(layer, padding=1) and layer.kernel_size == (3, 3)


def suits_stem(layer: nn.Conv2d) -> bool:
    """A square convolution of at most 3 channels and 32 weights per output."""
    few = layer.in_channels <= 3 and layer.weight[0].numel() <= 32
    return few and _is_square(layer, padding=layer.padding[0])


def suits_projection(layer: nn.Conv2d) -> bool:
    """A 1×1 convolution with a stride."""
    kernel, stride, padding = layer.kernel_size, layer.stride, layer.padding
    return kernel == (1, 1) and padding == (0, 0) and stride != (1, 1) and layer.groups == 1


def _is_square(layer: nn.Conv2d, *, padding: Any) -> bool:
    """Whether the layer treats height and width alike, without stride, dilation and groups."""
    height, width = layer.kernel_size
    dense = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    padded = layer.padding == (padding, padding) and layer.padding_mode == "zeros"
    return height == width and dense and padded
