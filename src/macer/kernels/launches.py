"""Fewer launches of kernels: a step recorded as one graph, many small tensors copied as one.

A LeNet is so small that a GPU finishes its kernels faster than the host can launch them.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

WARM_UP = 3  # steps taken without a graph, in which libraries choose kernels and allocate memory

Packed = dict[torch.dtype, Tensor]


class CapturedStep:
    """Records a function as a CUDA graph and replays it.

    The graph repeats the kernels, on the same tensors. What the function computes on the host is
    computed once, when it is recorded: whatever changes from step to step must be in those tensors
    or in the state of the generators.
    """

    def __init__(self, function: Callable[[], None], generators: Sequence[torch.Generator]) -> None:
        self._function = function
        self._generators = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self._phase: object = None

    def __call__(self) -> None:
        """Take the step."""
        self._calls += 1
        if self._calls <= WARM_UP:
            self._function()
            return
        if self._graph is None:
            self._graph = self._recorded()
        self._graph.replay()

    def record_anew_if_changed(self, phase: object) -> None:
        """Say what the function reads on the host; it is recorded anew when that has changed."""
        if phase != self._phase:
            self._graph, self._phase = None, phase

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            self._function()
        return graph


def pack(tensors: Iterable[Tensor]) -> Packed:
    """A copy of the tensors' values, end to end, in one tensor per type."""
    return {
        dtype: torch.cat([tensor.flatten() for tensor in of_type])
        for dtype, of_type in _by_type(tensors).items()
    }


def unpack(packed: Packed, tensors: Iterable[Tensor]) -> None:
    """Put values back where `pack` took them from."""
    for dtype, of_type in _by_type(tensors).items():
        values = torch.split(packed[dtype], [tensor.numel() for tensor in of_type])
        shaped = [value.view(tensor.shape) for value, tensor in zip(values, of_type, strict=True)]
        torch._foreach_copy_(of_type, shaped)


def _by_type(tensors: Iterable[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return groups
