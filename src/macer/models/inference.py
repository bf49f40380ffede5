"""A network as certification runs it: batch-norm folded, channels last, in one precision."""

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from macer.kernels.agreement import agree, few_images
from macer.kernels.fuse_inference import fused
from macer.kernels.graph import Layers, called_and_read_once, is_call_of, made_of_torch
from macer.kernels.layers import FloatLinear
from macer.kernels.padding import padded
from macer.models.ensembles import mean_logits
from macer.models.modes import has_hooks
from macer.models.probe import check_calls, check_model
from macer.system.errors import Mistake

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def for_inference(
    model: nn.Module,
    *,
    shape: tuple[int, ...],
    precision: str,
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> nn.Module:
    """A copy of the model in eval mode that computes the same function faster.

    Batch-norm after a convolution becomes part of its weights. In bf16 on a GPU a convolution, the
    shortcut added to it and the ReLU and pooling after it become one or two kernels, and channels
    of zeros are added where more channels are faster. A certificate belongs to the copy: because of
    rounding it is not quite the same function as the model. A model stays as it is if torch.fx
    cannot trace it, or if it uses other operations than torch's.

    Args:
        shape: (channels, height, width); a model of other inputs is not folded.
        precision: "fp32" or "bf16".
        progress: called with 1 after each call by which the model is tried, see `check_calls`.
    """
    check_model(model)
    if precision not in DTYPES:
        raise Mistake(f"precision must be one of {', '.join(DTYPES)}, got {precision}")
    prepared = _copied(model).eval().cpu().float()
    if len(shape) != 3:
        return prepared.to(device=device, dtype=DTYPES[precision]).requires_grad_(False)
    prepared = _folded(prepared, shape, progress)
    fuses = device.type == "cuda" and precision == "bf16"
    if fuses and isinstance(prepared, fx.GraphModule):
        prepared = padded(prepared, shape)
    prepared.to(device=device, dtype=DTYPES[precision])
    prepared.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precision == "bf16" and isinstance(prepared, fx.GraphModule):
        _end_in_float(prepared)
    if fuses and isinstance(prepared, fx.GraphModule):
        prepared = fused(prepared, shape)
    for parameter in prepared.parameters():
        parameter.requires_grad_(False)
    return prepared


def resolve_precision(precision: str, device: torch.device) -> str:
    """The precision that "auto" means on a device."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" else "fp32"


@torch.no_grad()  # a module of TorchScript is copied by functions that would be differentiated
def _copied(model: nn.Module) -> nn.Module:
    """A copy of the model; the two share what cannot be copied, such as a session or a lock."""
    try:
        return copy.deepcopy(model)
    except Exception:  # whatever the user's code holds
        return copy.deepcopy(model, {id(value): value for value in _not_to_copy(model)})


def _not_to_copy(model: nn.Module) -> Iterator[Any]:
    """The values that parts of the model hold and that cannot be copied."""
    for part in model.modules():
        others = vars(part).keys() - {"_parameters", "_buffers", "_modules"}
        for value in (vars(part)[name] for name in others):
            try:
                copy.deepcopy(value)
            except Exception:
                yield value


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model without DataParallel, which runs on devices of its own choice."""
    while isinstance(model, nn.DataParallel):
        model = model.module
    for name, part in list(model.named_modules()):
        if isinstance(part, nn.DataParallel):
            model.set_submodule(name, part.module)
    return model


def _folded(
    model: nn.Module, shape: tuple[int, int, int], progress: Callable[[int], None] | None
) -> nn.Module:
    """The model with batch-norm folded, or itself where that is not the same function."""
    if has_hooks(model):  # a trace would not run them
        return model
    model, images = _unwrapped(model), few_images(shape, seed=0)
    if not made_of_torch(model, images[:2]):
        return model
    check_calls(model, images, progress)
    try:
        graph = fx.symbolic_trace(copy.deepcopy(model))
    except Exception:  # whatever the user's code raises on a symbol
        return model
    _fold(graph)
    return graph if agree(model, graph, shape, tolerance=1e-3) else model


def _drop_idle_arithmetic(graph: fx.GraphModule) -> None:
    """Leave out x − 0 and x / 1: a normalisation whose means are 0 and deviations 1 has them."""
    idle = {operator.sub: 0.0, operator.truediv: 1.0}
    for node in list(graph.graph.nodes):
        other: Any = node.args[1] if node.target in idle else None
        if isinstance(other, fx.Node) and other.op == "get_attr":
            value = operator.attrgetter(str(other.target))(graph)
            if value.numel() and bool((value == idle[node.target]).all()):
                node.replace_all_uses_with(node.args[0])
    graph.graph.eliminate_dead_code()


def _fold(graph: fx.GraphModule) -> None:
    """Make each batch-norm part of the convolution before it, if nothing else reads that."""
    _drop_idle_arithmetic(graph)
    layers: Layers = dict(graph.named_modules())
    for norm in list(graph.graph.nodes):
        if not is_call_of(norm, layers, nn.BatchNorm2d):
            continue
        if layers[norm.target].running_mean is None:  # it takes the statistics of the batch
            continue
        source = norm.args[0]
        if is_call_of(source, layers, nn.Conv2d) and called_and_read_once(graph, source):
            folded = fuse_conv_bn_eval(layers[source.target], layers[norm.target])
            graph.set_submodule(source.target, folded)
            norm.replace_all_uses_with(source)
            graph.graph.erase_node(norm)
    graph.recompile()
    graph.delete_all_unused_submodules()


def _end_in_float(graph: fx.GraphModule) -> None:
    """Compute a linear last layer in float32; in an ensemble, that of each member."""
    layers: Layers = dict(graph.named_modules())
    [output] = [node for node in graph.graph.nodes if node.op == "output"]
    whole = output.args[0]
    ends = whole.args[0] if getattr(whole, "target", None) is mean_logits else [whole]
    for last in ends:
        if is_call_of(last, layers, nn.Linear) and called_and_read_once(graph, last):
            graph.set_submodule(last.target, FloatLinear(layers[last.target]))
