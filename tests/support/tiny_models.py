"""Networks, images and a recipe small enough to train in a blink."""

from typing import Any

import numpy as np
from torch import nn

from macer.data.sets import Split
from macer.losses import LOSSES, completed
from macer.recipes import TrainRecipe

CLASSES = ("left", "middle", "right")


def tiny(num_classes: int, channels: int) -> nn.Module:
    """For images of any size."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * channels, 8),
        nn.ReLU(),
        nn.Linear(8, num_classes),
    )


def tiny_with_batch_norm(num_classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64, num_classes),
    )


def tiny_with_dropout(num_classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16 * channels, num_classes),
    )


def tiny_split(images: int = 64, channels: int = 1, seed: int = 0) -> Split:
    """8×8 images with a bright band at the left, in the middle or at the right."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(CLASSES), size=images)
    pixels = random.integers(100, size=(images, channels, 8, 8))
    for image, label in zip(pixels, labels, strict=True):
        image[:, :, 3 * label : 3 * label + 2] += 150
    return Split(pixels.astype(np.uint8), labels, "tiny")


def tiny_recipe(**changes: Any) -> TrainRecipe:
    fields = {
        "dataset": "tiny", "model": "tiny_models:tiny", "sigma": 0.25, "k": 4,
        "epochs": 3, "batch": 16, "lr": 0.1, "lr_schedule": "cosine", "lr_decays": (),
    }  # fmt: skip
    settings = {} if "loss" in changes else {"lam": 2.0}
    recipe = TrainRecipe(**fields).changed(**settings | changes)
    return completed(recipe) if recipe.loss.name in LOSSES else recipe
