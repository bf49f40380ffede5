import pytest
import torch
from tiny_models import tiny_with_batch_norm
from torch import nn

from macer.system import rates
from macer.system.rates import (
    matrix_rate,
    median_seconds,
    operations,
    seconds,
    steady_rate,
    wait_for,
)

CPU = torch.device("cpu")


def a_clock(monkeypatch, *readings):
    readings = iter(readings)
    monkeypatch.setattr(rates.time, "perf_counter", lambda: next(readings))


# law


def test_seconds_are_those_of_the_call(monkeypatch):
    a_clock(monkeypatch, 10.0, 12.5)
    calls = []
    assert seconds(lambda: calls.append(None)) == 2.5
    assert len(calls) == 1


def test_ways_are_taken_in_turn_and_their_medians_returned(monkeypatch):
    a_clock(monkeypatch, 0, 4, 0, 2, 0, 8, 0, 1, 0, 9, 0, 4)
    calls = []
    taken = median_seconds({"plain": lambda: calls.append("p"), "ours": lambda: calls.append("o")})
    assert taken == {"plain": 8, "ours": 2}
    assert calls == ["p", "o"] * 3


class Machine:
    """A clock that goes on by what work takes: so long for a start and for each piece."""

    def __init__(self, start, each):
        self.now, self.start, self.each, self.rounds = 0.0, start, each, []

    def work(self, pieces):
        self.rounds.append(pieces)
        self.now += self.start + pieces * self.each(len(self.rounds))


@pytest.mark.parametrize(("each", "least"), [(0.001, 100), (1.0, 2), (10.0, 3), (0.07, 1)])
def test_a_steady_rate_is_that_of_the_work(each, least):
    machine = Machine(0.0, lambda _: each)
    rate = steady_rate(machine.work, least, clock=lambda: machine.now)
    assert rate == pytest.approx(1 / each)
    assert machine.rounds[0] == least


def test_a_steady_rate_takes_seconds_and_leaves_out_short_rounds_and_a_busy_moment():
    """Rounds 1 to 4 warm up and are slow; round 7 is a busy moment."""
    slow = {1: 2, 2: 2, 3: 2, 4: 2, 7: 5}
    machine = Machine(0.0, lambda i: 0.01 * slow.get(i, 1))
    rate = steady_rate(machine.work, 1, clock=lambda: machine.now)
    assert rate == pytest.approx(100)
    assert machine.rounds[:4] == [1, 2, 4, 8] and machine.now < 10
    assert len(set(machine.rounds[-3:])) == 1


def test_work_that_takes_long_is_done_once():
    machine = Machine(5.0, lambda _: 1.0)
    assert steady_rate(machine.work, 5, clock=lambda: machine.now) == 0.5
    assert machine.rounds == [5]


def test_a_cpu_is_not_waited_for():
    wait_for(CPU)


def test_a_network_that_takes_no_single_image_is_counted_too():
    class Several(nn.Module):
        def forward(self, x):
            assert len(x) > 1
            return x.flatten(1) @ torch.ones(4, 3)

    assert operations(Several(), (1, 2, 2)) == 2 * 4 * 3


# known value


def test_operations_are_two_for_each_product_of_a_layer():
    model = tiny_with_batch_norm(3, 1)
    convolution, linear = 4 * 9 * 6 * 6, 64 * 3  # 3×3, 4 channels, 6×6 outputs of an 8×8 image
    assert operations(model, (1, 8, 8)) == 2 * (convolution + linear)


def test_the_matrix_rate_is_that_of_the_quickest_round(monkeypatch):
    """Twenty products of 2 · 8192³ operations in 3, 2 and 4 seconds."""
    monkeypatch.setattr(rates.torch, "randn", lambda *_, **__: torch.ones(1, 1))
    a_clock(monkeypatch, 0, 3, 0, 2, 0, 4)
    assert matrix_rate(CPU) == 20 * 2 * 8192**3 / 2


def test_a_comparison_says_its_figures_in_words():
    measured = rates.comparison("work", plain=100.0, ours=1000.0, ordinary=1020.0, matrix_share=0.5)
    assert measured.line == (
        "work: plain 100 samples/s, ours 1,000 samples/s, ratio 10.00, 1,020 with ordinary noise: "
        "exact costs +2.0%, 50.0% of the matrix rate"
    )
    assert measured.figures == {
        "what": "work", "plain": 100.0, "ours": 1000.0, "ordinary": 1020.0, "ratio": 10.0,
        "matrix_share": 0.5,
    }  # fmt: skip
