"""Logits and batches that the tests of several losses use."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tiny_models import CLASSES, tiny_split
from torch import Tensor

from macer.losses import Batch, Objective, find_objective
from macer.models.build import build_model
from macer.recipes import TrainRecipe
from macer.training.step import Trainer

EXTREMES = ("huge", "equal", "one-hot", "nobody correct", "everybody correct")


def random_logits(
    seed: int, *, images: int = 16, k: int = 4, classes: int = 10, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Logits (images, k, classes) in float64, most of them right, and labels."""
    random = np.random.default_rng(seed)
    labels = torch.from_numpy(random.integers(classes, size=images))
    centre = random.normal(size=(images, 1, classes))
    logits = torch.from_numpy(scale * (centre + random.normal(size=(images, k, classes))))
    logits[torch.arange(images), :, labels] += 2 * scale
    return logits, labels


def extreme_logits(extreme: str, *, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Saturated logits (10, k, 10) with a gradient, and labels; for "huge" the copies disagree."""
    labels = torch.arange(10)
    one_hot = F.one_hot(labels, 10).float()[:, None].expand(10, k, 10)
    logits = {
        "huge": 1e4 * torch.randn(10, k, 10, generator=torch.Generator().manual_seed(0)).sign(),
        "equal": torch.full((10, k, 10), 7.0),
        "one-hot": one_hot,
        "nobody correct": -1e4 * one_hot,
        "everybody correct": 1e4 * one_hot,
    }[extreme]
    return logits.to(dtype, copy=True).requires_grad_(), labels


def batch_of(recipe: TrainRecipe) -> Batch:
    """All tiny images with their noise, and a fresh network in training mode."""
    split = tiny_split()
    torch.manual_seed(recipe.seed)
    shape = split.images.shape[1:]
    network = build_model(
        recipe.model, num_classes=len(CLASSES), shape=shape, denoiser=recipe.denoiser
    )
    images = torch.from_numpy(split.images).float() / 255
    return Batch(
        network=network.train(),
        images=images,
        labels=torch.from_numpy(split.labels),
        noise=recipe.sigma * torch.randn(len(images), recipe.k, *shape),
        recipe=recipe,
        epoch=0.0,
        uniform=torch.rand,
    )


def losses_of(batch: Batch, **settings: Any) -> Tensor:
    """The losses of a batch by its recipe, as a trainer asks for them.

    Args:
        settings: of the loss, in place of the recipe's.
    """
    loss = batch.recipe.loss.changed(**settings)
    return find_objective(loss.name).loss(batch, **loss)


def in_place_of(loss: Callable[..., Tensor], function: Callable[..., Tensor]) -> Objective:
    """An objective with the settings of another loss."""
    return Objective(wraps(loss)(function))


def without_values(batch: Batch) -> Batch:
    """The batch as shapes only: an objective that looks at a number or a mask's size fails."""
    return replace(
        batch,
        network=batch.network.to("meta"),
        teacher=batch.teacher and batch.teacher.to("meta"),
        images=batch.images.to("meta"),
        labels=batch.labels.to("meta"),
        noise=batch.noise.to("meta"),
        uniform=lambda count: torch.rand(count, device="meta"),
    )


def loss_before_and_after_a_step(recipe: TrainRecipe) -> tuple[float, float]:
    """The loss of all tiny images under fixed noise, before and after one step of training."""
    batch = batch_of(recipe)
    trainer = Trainer(recipe, batch.network, tiny_split(), torch.device("cpu"))
    losses = [losses_of(batch).mean().item()]
    next(trainer.rest_of_epoch())
    losses.append(losses_of(batch).mean().item())
    return losses[0], losses[1]


def one_number(batch: Batch) -> Tensor:
    """An objective of the wrong shape."""
    return batch.logits().mean()
