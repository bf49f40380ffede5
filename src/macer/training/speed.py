"""The speed of a training: seconds, noisy samples per second, share of the chip's rate."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.sets import Split
from macer.kernels.launches import WARM_UP
from macer.losses import LOSSES
from macer.recipes import TrainRecipe
from macer.runs.model_file import ModelCard
from macer.runs.run import Metrics
from macer.system.rates import matrix_rate, operations, steady_rate, wait_for
from macer.system.text import rate_text
from macer.training.step import Trainer

# The cost of a pass in forward passes. The gradients of a layer's inputs take as many operations
# as its outputs, and so do the gradients of its weights.
FORWARD, ATTACK, TRAINING = 1, 2, 3


class Passes(NamedTuple):
    """The passes of the network and its teacher per image and epoch."""

    images: float  # images that they see
    forwards: float  # forward passes with the same number of operations, gradients included


def count_passes(
    recipe: TrainRecipe, few: Split, model: nn.Module, teacher: nn.Module | None
) -> Passes:
    """Count an objective's passes in a short training on few images, one step per epoch.

    No images are dropped. The training runs on the CPU, since a GPU may replay steps without
    calling the network. In training mode a pass is differentiated for the weights, in eval mode
    for its input at most. A teacher's pass counts like the network's own.
    """
    recipe = replace(recipe, batch=len(few.images), labelled=0, pseudo="", drop_below=0.0)
    trainer = Trainer(recipe, model, few, torch.device("cpu"), teacher=teacher)
    images, costs = [], []

    def count(network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        images.append(len(inputs[0]))
        in_eval_mode = ATTACK if inputs[0].requires_grad else FORWARD
        costs.append(TRAINING if network.training else in_eval_mode)

    for network in filter(None, (trainer.model, teacher)):
        network.register_forward_pre_hook(count)
    while trainer.epoch < recipe.epochs:
        for _ in trainer.rest_of_epoch():
            pass
    total = len(few.images) * recipe.epochs
    return Passes(sum(images) / total, float(np.dot(images, costs)) / total)


def steps_per_second(trainer: Trainer, *, clock: Callable[[], float] = time.perf_counter) -> float:
    """Steps per second in the middle of a training; some losses do less work at its beginning."""
    steps = _steps_from_the_middle(trainer)

    def take(count: int) -> None:
        for _ in range(count):
            next(steps)
        wait_for(trainer.device)

    if trainer.device.type != "cpu":  # kernels are compiled and chosen, and the step is recorded
        take(WARM_UP + 1)
    return steady_rate(take, 1, clock=clock)


def _steps_from_the_middle(trainer: Trainer) -> Iterator[None]:
    while True:
        trainer.step = trainer.recipe.epochs // 2 * trainer.steps_per_epoch
        while trainer.epoch < trainer.recipe.epochs:
            yield from trainer.rest_of_epoch()


def epoch_seconds(metrics: Sequence[Metrics], recipe: TrainRecipe) -> list[float]:
    """Seconds of each recorded epoch, computed from its speed, which excludes validation."""
    samples = _samples_of_epoch(metrics, recipe)
    return [samples / line["samples_per_second"] for line in metrics]


def _samples_of_epoch(metrics: Sequence[Metrics], recipe: TrainRecipe) -> float:
    samples: float = metrics[0]["step"] / metrics[0]["epoch"] * recipe.batch * recipe.k
    return samples


def training_speed(
    recipe: TrainRecipe,
    card: ModelCard,
    metrics: Sequence[Metrics],
    device: torch.device,
    *,
    devices: int = 1,
) -> dict[str, float]:
    """Seconds of all epochs, noisy samples per second and, on GPUs, the share of the matrix rate.

    The seconds are those of the steps that led to the model, also of earlier processes. A resumed
    epoch counts at the speed of its last part, and an epoch that was not recorded at the mean of
    the others. Checkpoints within an epoch are counted, validation is not.
    """
    if not metrics:
        return {}
    mean = statistics.fmean(epoch_seconds(metrics, recipe))
    rate = _samples_of_epoch(metrics, recipe) / mean
    speed = {"seconds": recipe.epochs * mean, "samples_per_second": rate}
    # A user's own objective may need more of a network than the small one offers, and frozen parts
    # take fewer operations.
    frozen = recipe.freeze or recipe.freeze_all_but or recipe.denoiser != "none"
    if device.type == "cuda" and recipe.loss.name in LOSSES and not frozen:
        peak = devices * matrix_rate(device)
        share = rate * operations_of_sample(recipe, card) / peak
        speed |= {"matrix_rate": peak, "matrix_share": share}
    return speed


def operations_of_sample(recipe: TrainRecipe, card: ModelCard) -> float:
    """Operations of the network and its gradients for each of an image's k noisy copies."""
    # The number of passes depends neither on the network nor on the images.
    few = Split(np.zeros((8, 1, 4, 4), np.uint8), np.arange(8) % 2)
    teacher = _small_network().eval().requires_grad_(False) if recipe.loss.get("teacher") else None
    passes = count_passes(replace(recipe, precision="fp32"), few, _small_network(), teacher)
    return passes.forwards / recipe.k * operations(card.build(), card.shape)


def _small_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 2))


def trained_line(name: str, speed: dict[str, float]) -> str:
    """The last line of a training; `speed` is the manifest's, or empty."""
    if not speed:
        return f"trained {name}"
    seconds = speed["seconds"]
    line = f"trained {name} in {seconds:{',.0f' if seconds >= 10 else '.1f'}} s"
    line += f": {rate_text(speed['samples_per_second'])} samples/s"
    if "matrix_share" in speed:
        line += f", {speed['matrix_share']:.1%} of the {speed['matrix_rate'] / 1e12:.0f} TFLOP/s"
        line += " of a bf16 matrix product"
    return line
