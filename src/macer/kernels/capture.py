"""A step on a GPU recorded as one graph: a launch instead of hundreds."""

from collections.abc import Callable, Sequence

import torch

WARM_UP = 3  # steps taken as they are, in which libraries choose kernels and take memory


class CapturedStep:
    """Replays a function that reads and writes tensors of one place and shape.

    What the function computes on the host, it computes when it is recorded: whatever changes from
    step to step must be in those tensors, or in the generators' seeds.
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
