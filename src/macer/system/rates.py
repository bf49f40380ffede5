"""Seconds of work, operations in it, and the rate of the chip that they are measured against."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

ROUNDS = 3


class Measured(NamedTuple):
    """A line of a benchmark, and its figures for programs: of the place, or of a comparison."""

    line: str
    figures: Mapping[str, Any]


def place(line: str, gpu: str | None = None, peak: float | None = None) -> Measured:
    """Where a benchmark runs."""
    threads = None if gpu else torch.get_num_threads()
    about = {"torch": torch.__version__, "threads": threads, "gpu": gpu, "matrix_rate": peak}
    return Measured(line, about)


def comparison(
    line: str,
    what: str,
    *,
    plain: float,
    ours: float,
    ordinary: float | None = None,
    matrix_share: float | None = None,
) -> Measured:
    """Samples a second, plain and ours."""
    rates = {"plain": plain, "ours": ours, "ordinary": ordinary, "ratio": ours / plain}
    return Measured(line, {"what": what, **rates, "matrix_share": matrix_share})


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def median_seconds(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median times of several ways, taken in turn so that a busy moment falls on all of them."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, run in ways.items():
            times[way].append(seconds(run))
    return {way: statistics.median(taken) for way, taken in times.items()}


def wait_for(device: torch.device) -> None:
    """Return when the device has done all it was given; a CPU has by then."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def operations(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Floating-point operations of one image's pass, a product and a sum counting as two.

    Args:
        model: on the CPU; it is put into eval mode.
        shape: (channels, height, width)
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(2, *shape))  # two: not every network takes one image alone
    return int(counter.get_total_flops()) // 2


def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large bf16 matrix product, the chip's practical ceiling."""
    size = 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(20):
            a @ b
        wait_for(device)

    return 20 * 2 * size**3 / min(seconds(products) for _ in range(ROUNDS))
