"""Networks and inputs that are no images: a table of two Gaussians, and series of two pitches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from macer.recipes import Loss, TrainRecipe

Inputs = tuple[NDArray[np.float64], NDArray[np.int64]]

CLASSES = ("low", "high")


def linear(num_classes: int, channels: int) -> nn.Module:
    return nn.Linear(channels, num_classes)


def series(num_classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(channels, 8, kernel_size=5, stride=2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(8, num_classes),
    )


def volume(num_classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(channels, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 27, num_classes)
    )


def table(rows: int, seed: int) -> Inputs:
    """Two Gaussians in 10 dimensions, of deviation 1 about ±2 on the axis of ones, off centre."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=rows)
    means = (2 * labels - 1)[:, None] * 2 / 10**0.5
    return 0.3 + means + random.normal(size=(rows, 10)), labels


def pitches(rows: int, seed: int) -> Inputs:
    """Sines of one pitch or of twice that, at any phase."""
    random = np.random.default_rng(seed)
    labels = random.integers(2, size=rows)
    phase = random.uniform(0, 2 * np.pi, size=(rows, 1))
    time = np.linspace(0, 2 * np.pi, 64)
    return np.sin(4 * (1 + labels[:, None]) * time + phase)[:, None], labels


def recipe(**changes: Any) -> TrainRecipe:
    fields = {
        "model": "input_networks:linear", "sigma": 1.0, "k": 4, "epochs": 8, "batch": 32,
        "lr": 0.05, "lr_schedule": "cosine", "lr_decays": (), "loss": Loss("macer", lam=1.0),
    }  # fmt: skip
    return TrainRecipe(**fields | changes)
