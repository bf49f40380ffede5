"""The benchmark of training: a plain step and ours do the same work."""

import re

import pytest
import torch

from macer.experiments import bench_training
from macer.experiments.bench_training import (
    Case,
    PlainTrainer,
    our_epoch,
    plain_network,
    random_split,
)
from macer.losses import completed
from macer.recipes import TrainRecipe
from macer.system import rates
from macer.training.step import Trainer

CPU = torch.device("cpu")
TINY = Case("tiny_models:tiny", (1, 8, 8), 16, 4)
LENET = Case("lenet", (1, 28, 28), 8, 2)


def trainers(case, steps, **fields):
    recipe = completed(TrainRecipe(model=case.network, k=case.k, batch=case.batch, **fields))
    plain = PlainTrainer(recipe, plain_network(case), random_split(case, steps), CPU)
    return plain, Trainer(recipe, bench_training.network(case), random_split(case, steps), CPU)


# law


@pytest.mark.parametrize("case", [TINY, LENET])
def test_without_noise_a_plain_step_and_ours_end_in_the_same_weights(case):
    plain, ours = trainers(case, 1, sigma=1e-6)
    before = torch.cat([p.detach().flatten().clone() for p in plain.model.parameters()])
    plain.epoch(), our_epoch(ours)
    after, also = (
        torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        for trainer in (plain, ours)
    )
    assert not torch.equal(after, before)
    torch.testing.assert_close(after - before, also - before, rtol=1e-3, atol=1e-6)


def test_a_plain_step_has_noise_of_standard_deviation_sigma():
    plain, _ = trainers(TINY, 1, sigma=0.25)
    seen = []
    plain.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    plain.step(torch.arange(16))
    noise = seen[0].view(16, 4, 1, 8, 8) - plain.images[:, None]
    assert noise.std() == pytest.approx(0.25, rel=0.05)
    assert not torch.equal(noise[:, 0], noise[:, 1])


def test_plain_and_our_epoch_see_the_same_number_of_samples():
    plain, ours = trainers(TINY, 3, sigma=0.25)
    assert plain.epoch() == our_epoch(ours) == plain.epoch() == our_epoch(ours) == 3 * 16 * 4


def test_the_plain_network_is_ours_but_for_lenets_order_of_layers():
    images = torch.rand(4, 1, 28, 28)
    outputs = [make(LENET).eval()(images) for make in (plain_network, bench_training.network)]
    torch.testing.assert_close(*outputs)


def test_the_benchmark_says_where_it_runs_then_one_line_for_each_case(monkeypatch):
    monkeypatch.setattr(bench_training, "CASES", {"cpu": (TINY, LENET)})
    monkeypatch.setattr(bench_training, "STEPS", {"cpu": 4})
    monkeypatch.setattr(rates, "ROUNDS", 1)
    place, *lines = (part.line for part in bench_training.run_train_bench(device=CPU))
    assert place == f"1 threads, torch {torch.__version__}"
    speeds = r"plain [\d,]+ samples/s, ours [\d,]+ samples/s, ratio \d+\.\d\d"
    assert len(lines) == 2
    for line, start in zip(lines, ("tiny_models:tiny, 16 ", "lenet, 8 "), strict=True):
        assert re.fullmatch(rf"{start}images × k = \d: {speeds}", line)


def test_the_ratio_is_that_of_speeds_and_the_share_of_three_passes(monkeypatch):
    """Plain takes a quarter of the steps: 2 of 8, of 64 samples each."""
    monkeypatch.setattr(bench_training, "median_seconds", lambda _: {"plain": 1.0, "ours": 0.5})
    forward = 2 * (16 * 8 + 8 * 10)
    line = bench_training.compare(TINY, 8, CPU, 1024 * 3 * forward / 0.125).line
    assert line == (
        "tiny_models:tiny, 16 images × k = 4: plain 128 samples/s, ours 1,024 samples/s, "
        "ratio 8.00, 12.5% of the matrix rate"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_each_line_ends_in_a_share_of_the_matrix_rate(monkeypatch):
    case = Case("resnet20", (3, 32, 32), 8, 2)
    monkeypatch.setattr(bench_training, "CASES", {"cuda": (case,)})
    monkeypatch.setattr(bench_training, "STEPS", {"cuda": 8})
    _, rate, line = (
        part.line for part in bench_training.run_train_bench(device=torch.device("cuda"))
    )
    assert re.fullmatch(r"bf16 product of two 8192×8192 matrices: [1-9]\d* TFLOP/s", rate)
    share = float(re.search(r", ([\d.]+)% of the matrix rate$", line)[1])
    assert 0 < share < 100
