"""Whether a network is made of torch's operations: only such a one may be traced.

torch.fx calls a network's code with a symbol in place of the images. Torch's functions know
symbols. Compiled code of others, such as onnxruntime, may take one for an array and end the
process. So the code is first run on real images, and watched: a network of which a value leaves
torch, or into which one comes that torch's functions have not made, is not traced.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Functions of a tensor that give its values, or where they are, to code outside of torch. Others,
# such as numpy, are known by the type of what they return.
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

# What a function may return: tensors, or what describes one.
DESCRIPTIONS = (int, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


def made_of_torch(model: nn.Module, images: Tensor) -> bool:
    """Whether all that the model does with the images goes through functions of torch."""
    watch = _Watch([images, *tensors_of(model)])
    try:
        with torch.inference_mode(), watch:
            answer = model(images)
    except Exception:  # whatever the user's code raises
        return False
    return not watch.left and watch.knows(answer)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """The parameters and buffers of a model, and other tensors that its parts hold."""
    for part in model.modules():
        for value in _leaves(list(vars(part).values())):
            if isinstance(value, Tensor):
                yield value


def _leaves(values: Any) -> Iterator[Any]:
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from _leaves(value)
    else:
        yield values


class _Watch(TorchFunctionMode):
    """Sees each call of torch's functions, and notes whether values go other ways."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.left = False
        self._known = {id(tensor): tensor for tensor in tensors}  # alive, so that ids stay theirs

    def knows(self, values: Any) -> bool:
        """Whether all tensors among the values come from torch's functions."""
        tensors = (value for value in _leaves(values) if isinstance(value, Tensor))
        return all(id(tensor) in self._known for tensor in tensors)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.left |= name in WAYS_OUT or not self.knows([args, kwargs])
        for value in _leaves(result):
            if not isinstance(value, Tensor):
                self.left |= not isinstance(value, DESCRIPTIONS)
            elif name not in WAYS_IN:
                self._known[id(value)] = value
        return result
