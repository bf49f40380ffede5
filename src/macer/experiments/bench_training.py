"""MACER's training step beside a plain one, measured in one run on one machine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from macer.data.sets import Split
from macer.experiments.bench import about_gpu, plain_lenet
from macer.losses import completed, macer_loss
from macer.models.build import build_model
from macer.recipes import TrainRecipe
from macer.system.rates import (
    Measured,
    comparison,
    matrix_rate,
    median_seconds,
    operations,
    place,
    wait_for,
)
from macer.training.speed import TRAINING
from macer.training.step import Trainer

SIGMA = 0.25


@dataclass(frozen=True)
class Case:
    """A network and the shape of its batches."""

    network: str
    shape: tuple[int, int, int]
    batch: int
    k: int


CASES = {
    "cuda": (
        Case("resnet110", (3, 32, 32), 64, 16),
        Case("resnet18", (3, 32, 32), 256, 4),
        Case("wide14", (3, 32, 32), 256, 4),
        Case("wide14", (3, 32, 32), 256, 2),
    ),
    "cpu": (Case("lenet", (1, 28, 28), 64, 16),),
}
STEPS = {"cuda": 60, "cpu": 32}  # in an epoch


def run_train_bench(*, device: torch.device) -> Iterator[Measured]:
    """Time MACER epochs of random images, ours and plain in turn, one line for each case."""
    peak = None
    if device.type == "cuda":
        peak = matrix_rate(device)
        yield from about_gpu(device, peak)
    else:
        yield place(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    for case in CASES[device.type]:
        yield compare(case, STEPS[device.type], device, peak)


def compare(case: Case, steps: int, device: torch.device, peak: float | None) -> Measured:
    """The rates of a plain epoch and of ours, and with a peak the share of it that ours reaches."""
    recipe = completed(TrainRecipe(model=case.network, sigma=SIGMA, k=case.k, batch=case.batch))
    few = max(1, steps // 4)  # rates are compared, and the plain way takes long
    plain = PlainTrainer(recipe, plain_network(case), random_split(case, few), device)
    ours = Trainer(recipe, network(case), random_split(case, steps), device)
    ways: dict[str, Callable[[], int]] = {"plain": plain.epoch, "ours": lambda: our_epoch(ours)}
    for run in ways.values():
        run()  # compiles and chooses kernels
    taken, samples = median_seconds(ways), case.batch * case.k
    slow, fast = few * samples / taken["plain"], steps * samples / taken["ours"]
    share = fast * TRAINING * operations(network(case), case.shape) / peak if peak else None
    what = f"{case.network}, {case.batch} images × k = {case.k}"
    return comparison(what, plain=slow, ours=fast, matrix_share=share)


def network(case: Case) -> nn.Module:
    """The case's network, with the same weights whenever it is built."""
    torch.manual_seed(0)
    return build_model(case.network, num_classes=10, shape=case.shape)


def plain_network(case: Case) -> nn.Module:
    """The same function as it is usually written."""
    return plain_lenet() if case.network == "lenet" else network(case)


def random_split(case: Case, steps: int) -> Split:
    """Random images and labels for a number of steps."""
    random = np.random.default_rng(0)
    images = random.integers(256, size=(steps * case.batch, *case.shape), dtype=np.uint8)
    return Split(images, random.integers(10, size=len(images)))


def our_epoch(trainer: Trainer) -> int:
    """One epoch as `macer train` takes it; returns its samples."""
    samples = sum(trainer.samples for _ in trainer.rest_of_epoch())
    trainer.close_epoch()  # waits for the device
    return samples


class PlainTrainer:
    """Training as research code usually does it: fp32, default layout, one kernel after another.

    The images are on the device as floats, which is more than most research code does.
    """

    def __init__(
        self, recipe: TrainRecipe, model: nn.Module, split: Split, device: torch.device
    ) -> None:
        self.recipe = recipe
        self.model = model.to(device).train()
        self.images = torch.from_numpy(np.asarray(split.images)).to(device).float() / 255
        self.labels = torch.from_numpy(split.labels).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
        )

    def epoch(self) -> int:
        """One epoch over shuffled images; returns its samples."""
        order = torch.randperm(len(self.images), device=self.images.device)
        samples = sum(self.step(rows) for rows in torch.split(order, self.recipe.batch))
        wait_for(self.images.device)
        return samples

    def step(self, rows: torch.Tensor) -> int:
        """One step, with noise by `randn`; returns its samples."""
        recipe = self.recipe
        copies = self.images[rows].repeat_interleave(recipe.k, dim=0)
        noisy = copies + recipe.sigma * torch.randn_like(copies)
        logits = self.model(noisy).reshape(len(rows), recipe.k, -1)
        loss = macer_loss(
            logits,
            self.labels[rows],
            sigma=recipe.sigma,
            lam=recipe.loss["lam"],
            gamma=recipe.loss["gamma"],
            beta=recipe.loss["beta"],
        )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return len(copies)
