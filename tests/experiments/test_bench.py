"""The benchmark of certification: the plain way and ours do the same work."""

import re

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from macer.certification.largest_radius import certify
from macer.data.sets import load
from macer.experiments import bench
from macer.system import rates
from macer.system.errors import Mistake

SIZES = {"images": 1, "n": 50, "device": torch.device("cpu")}
LINE = r"{}: plain [\d,]+ samples/s, ours [\d,]+ samples/s, ratio \d+\.\d\d"


@pytest.mark.medium
def test_the_benchmark_says_where_it_runs_then_compares_certification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "ROUNDS", 1)
    place, certification, in_bf16 = (part.line for part in bench.run_bench(**SIZES))
    assert place == f"1 threads, torch {torch.__version__}, LeNet on 28×28 images"
    assert re.fullmatch(LINE.format("certification, 1 images × n = 50"), certification)
    assert re.fullmatch(LINE.format("the same, ours in bf16, 1 images × n = 50"), in_bf16)


def test_plain_and_our_certification_agree_but_for_chance() -> None:
    torch.manual_seed(0)
    doubtful = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    images = torch.from_numpy(load("mnist-sample", "test").images[:3])
    plain = bench.plain_certification(doubtful, images, 2000)
    ours = certify(doubtful, images, sigma=bench.SIGMA, n0=bench.N0, n=2000)
    for votes, certificate in zip(plain, ours, strict=True):
        assert votes.sum() == sum(certificate.estimation) == 2000
        counts = np.array([votes.tolist(), certificate.estimation])
        counts = counts[:, counts.sum(axis=0) > 10]
        assert counts.shape[1] > 2
        assert chi2_contingency(counts).pvalue > 1e-4


def test_the_ratio_is_that_of_the_median_times(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each run reads the clock twice: plain takes 4, 8, 9 seconds and ours 2, 1, 4.
    clock = iter([0, 4, 0, 2, 0, 8, 0, 1, 0, 9, 0, 4])
    monkeypatch.setattr(rates.time, "perf_counter", lambda: next(clock))
    measured = bench.compare("work", 8000, plain=lambda: None, ours=lambda: None)
    assert measured.line == "work: plain 1,000 samples/s, ours 4,000 samples/s, ratio 4.00"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"images": 0}, "images must be in 1…2000, got 0"),
        ({"images": 2001}, "images must be in 1…2000, got 2001"),
        ({"n": 9}, "n must be at least 10 to certify anything"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_any_work(
    sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(Mistake, match=message):
        next(bench.run_bench(**{**SIZES, **sizes}))


def test_the_plain_network_is_the_same_function():
    torch.manual_seed(0)
    images = torch.rand(8, 1, 28, 28)
    ours, plain = bench.our_lenet().eval(), bench.plain_lenet().eval()
    torch.testing.assert_close(plain(images), ours(images))
