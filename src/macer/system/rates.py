"""Seconds, operations and rates of work, and the rate of the chip that they are compared with."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

ROUNDS = 3
MEASURED_SECONDS = 3.0  # by `steady_rate`
SHORT = MEASURED_SECONDS / 6  # a round that takes less says little


class Measured(NamedTuple):
    """A line of a benchmark for people, and its figures for programs."""

    line: str
    figures: Mapping[str, Any]


def place(line: str, gpu: str | None = None, peak: float | None = None) -> Measured:
    """The hardware and software that a benchmark runs on."""
    threads = None if gpu else torch.get_num_threads()
    figures = {"torch": torch.__version__, "threads": threads, "gpu": gpu, "matrix_rate": peak}
    return Measured(line, figures)


def comparison(
    what: str,
    *,
    plain: float,
    ours: float,
    ordinary: float | None = None,
    matrix_share: float | None = None,
) -> Measured:
    """Samples per second of a plain implementation and of ours.

    Args:
        ordinary: ours with ordinary noise in place of exact noise.
        matrix_share: of ours in the matrix rate.
    """
    both = f"plain {plain:,.0f} samples/s, ours {ours:,.0f} samples/s, ratio {ours / plain:.2f}"
    line = f"{what}: {both}"
    if ordinary is not None:
        line += f", {ordinary:,.0f} with ordinary noise: exact costs {ordinary / ours - 1:+.1%}"
    if matrix_share is not None:
        line += f", {matrix_share:.1%} of the matrix rate"
    rates = {"plain": plain, "ours": ours, "ordinary": ordinary, "ratio": ours / plain}
    return Measured(line, {"what": what, **rates, "matrix_share": matrix_share})


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def median_seconds(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of several ways; they take turns, so that a busy moment affects all."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, run in ways.items():
            times[way].append(seconds(run))
    return {way: statistics.median(taken) for way, taken in times.items()}


def steady_rate(
    work: Callable[[int], object], least: int, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Pieces of work per second, the median of rounds that take about three seconds together.

    Short rounds are repeated with twice the pieces and do not count: they warm the machine up. At
    least ROUNDS count, or one of the fewest pieces that takes that long alone.

    Args:
        work: does so many pieces.
        least: the fewest pieces of a round.
    """
    pieces, total = least, 0.0
    rates: list[float] = []
    while total < MEASURED_SECONDS or len(rates) < ROUNDS:
        started = clock()
        work(pieces)
        taken = clock() - started
        if taken < SHORT and not rates:
            pieces *= 2
            continue
        rates.append(pieces / taken)
        total += taken
        if pieces == least and total >= MEASURED_SECONDS:
            break
    return statistics.median(rates)


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def operations(model: nn.Module, shape: tuple[int, ...]) -> int:
    """Floating-point operations for one image; a product and a sum count as two.

    Args:
        model: on the CPU; this function puts it into eval mode.
        shape: (channels, height, width)
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(2, *shape))  # some networks refuse a batch of one image
    return int(counter.get_total_flops()) // 2


def matrix_rate(device: torch.device) -> float:
    """Operations per second of a large bf16 matrix product, the chip's practical maximum."""
    size = 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(20):
            a @ b
        wait_for(device)

    return 20 * 2 * size**3 / min(seconds(products) for _ in range(ROUNDS))
