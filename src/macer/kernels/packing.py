"""Many small tensors as a few large ones, so that a GPU copies them in a launch or two."""

from collections.abc import Iterable

import torch
from torch import Tensor

Packed = dict[torch.dtype, Tensor]


def pack(tensors: Iterable[Tensor]) -> Packed:
    """A copy of the tensors' values, end to end, by their types."""
    return {
        dtype: torch.cat([tensor.flatten() for tensor in some])
        for dtype, some in _by_type(tensors).items()
    }


def unpack(packed: Packed, tensors: Iterable[Tensor]) -> None:
    """Put values back where `pack` took them from."""
    for dtype, some in _by_type(tensors).items():
        values = torch.split(packed[dtype], [tensor.numel() for tensor in some])
        shaped = [value.view(tensor.shape) for value, tensor in zip(values, some, strict=True)]
        torch._foreach_copy_(some, shaped)


def _by_type(tensors: Iterable[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    parts: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        parts.setdefault(tensor.dtype, []).append(tensor)
    return parts
