"""Compare the seconds that `macer plan` estimates with those that certifications take.

python tests/support/time_plan.py [--threads 1] [--rounds 3] [--networks lenet wide14 resnet50]

In one process, in each round network after network: the estimate by the clock, the certification,
then the estimate by the processor's time, which other work on the machine does not count in. Both
have the preparation of the network; weights are fresh, images of random pixels, σ = 0.5. One line
for each, with estimate / measured.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from macer.certification.budget import PlannedCertification
from macer.certification.data_set import certify_data_set
from macer.certification.pace import measured_pace
from macer.certification.preparation import plan_certification
from macer.certification.target import Target, untrained_target
from macer.data.sets import Split
from macer.recipes import CertifyRecipe

CPU = torch.device("cpu")


class Work(NamedTuple):
    """A network and how much of it is certified."""

    shape: tuple[int, int, int]
    classes: int
    images: int
    n0: int
    n: int


WORKS = {
    "lenet": Work((1, 28, 28), 10, images=60, n0=100, n=1000),
    "wide14": Work((3, 32, 32), 10, images=10, n0=100, n=400),
    "resnet50": Work((3, 224, 224), 1000, images=2, n0=100, n=300),
}


class Seconds(NamedTuple):
    """By the clock, and of the processor that this process used."""

    clock: float
    process: float


def main() -> None:
    """Print a line for each network and round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=WORKS, default=list(WORKS))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for _ in range(asked.rounds):
        for name in asked.networks:
            _print_line(name, WORKS[name])


def _print_line(name: str, work: Work) -> None:
    by_clock = _estimate(name, work, time.perf_counter)
    measured = _measured(name, work)
    by_process = _estimate(name, work, time.process_time)
    sys.stdout.write(
        f"{name}, {work.images} images, n = {work.n:,}: clock {by_clock:.1f} s estimated, "
        f"{measured.clock:.1f} s measured, ratio {by_clock / measured.clock:.2f}; process "
        f"{by_process:.1f} s, {measured.process:.1f} s, {by_process / measured.process:.2f}\n"
    )
    sys.stdout.flush()


def _target(name: str, work: Work) -> Target:
    return untrained_target(name, sigma=0.5, shape=work.shape, num_classes=work.classes)


def _estimate(name: str, work: Work, clock: Callable[[], float]) -> float:
    """What `macer plan` would say."""
    pace = measured_pace(_target(name, work), device=CPU, clock=clock)
    planned = PlannedCertification(pace, work.images, sigma=0.5, alpha=0.001, n0=work.n0, n=work.n)
    return planned.size(work.n).seconds


def _measured(name: str, work: Work) -> Seconds:
    """What `macer certify` takes, without the import of torch and the reading of the images."""
    random = np.random.default_rng(0)
    images = random.integers(256, size=(work.images, *work.shape), dtype=np.uint8)
    split = Split(images, np.arange(work.images) % work.classes)
    target = _target(name, work)
    clock, process = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        certification = plan_certification(
            target, split, "random", CertifyRecipe(n0=work.n0, n=work.n), device=CPU
        )
        certify_data_set(certification, range(work.images), Path(folder) / "run")
    return Seconds(time.perf_counter() - clock, time.process_time() - process)


if __name__ == "__main__":
    main()
