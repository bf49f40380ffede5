"""The running average of the weights, which is kept as the model."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from macer.models.weights import Tensors


@torch.no_grad()
def update_average(
    average: Tensors, model: nn.Module, share: Tensor, frozen: Collection[str] = ()
) -> None:
    """θ̄ ← (1 − s) θ̄ + s θ in place, without waiting for the device.

    Args:
        share: s, 0 after a step that was skipped. Integers such as counts of batches are copied.
        frozen: names of values that stay as they are; an average of equal numbers is rounded.
    """
    values = model.state_dict()
    floats = [n for n, value in values.items() if value.is_floating_point() and n not in frozen]
    averaged = [average[name] for name in floats]
    torch._foreach_mul_(averaged, 1 - share)
    torch._foreach_add_(averaged, torch._foreach_mul([values[name] for name in floats], share))
    for name in values.keys() - floats:
        average[name].copy_(values[name])
