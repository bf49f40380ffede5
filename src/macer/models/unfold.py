"""Batch-norms that were folded into the layers before them, and their statistics anew.

Files made for inference have them so: mean 0, variance 1 and weight 1 in every channel. In eval
mode such a network is whole. In training a batch-norm takes its mean and variance from the batch,
and a folded one then removes what the layer before it was meant to give.

For the inputs x of a batch-norm with mean μ, variance v, weight γ and bias β, and their own mean μ′
and variance v′ over some images:

γ′ = γ √(v′ + ε) / √(v + ε),  β′ = β + γ (μ′ − μ) / √(v + ε)

With μ′, v′, γ′ and β′ it gives in eval mode what it gave before, and in training about the same.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from macer.models.modes import evaluating

_NEAR = 1e-3  # of files in half precision


def folded_norms(model: nn.Module, keep: Collection[nn.Module] = ()) -> list[nn.Module]:
    """The folded batch-norms of a model, except in parts that stay as they are."""
    kept = {inner for part in keep for inner in part.modules()}
    return [part for part in model.modules() if _is_folded(part) and part not in kept]


def unfold(model: nn.Module, norms: Sequence[nn.Module], images: Tensor) -> None:
    """Give folded batch-norms the statistics of these images.

    Args:
        images: (images, channels, height, width) in [0, 1], on the model's device.
    """
    sums: dict[nn.Module, Any] = {}
    hooks = [norm.register_forward_pre_hook(partial(_add, sums)) for norm in norms]
    try:
        with evaluating(model), torch.no_grad():
            for part in torch.split(images, 64):
                model(part)
    finally:
        for hook in hooks:
            hook.remove()
    for norm, (count, first, second) in sums.items():
        mean = first / count
        _set_statistics(norm, mean, second / count - mean.square())


def _is_folded(module: Any) -> bool:
    if not isinstance(module, BatchNorm) or not (module.track_running_stats and module.affine):
        return False
    mean, variance = module.get_buffer("running_mean"), module.get_buffer("running_var")
    ones = torch.cat([variance, module.weight.detach()])
    return not mean.any() and bool(((ones - 1).abs() <= _NEAR).all())


def _add(sums: dict[nn.Module, Any], norm: nn.Module, inputs: tuple[Tensor]) -> None:
    """Add the inputs' number per channel, their sums and the sums of their squares."""
    x = inputs[0].double().transpose(0, 1).flatten(1)
    count, first, second = sums.get(norm, (0, 0.0, 0.0))
    sums[norm] = (count + x.shape[1], first + x.sum(1), second + x.square().sum(1))


def _set_statistics(norm: Any, mean: Tensor, variance: Tensor) -> None:
    with torch.no_grad():
        variance = variance.clamp(min=0)
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        norm.bias += scale * (mean - norm.running_mean)
        norm.weight.copy_(scale * (variance + norm.eps).sqrt())
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
