"""A service of two models of 8×8 images, and images that requests bring."""

import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from tiny_models import CLASSES, tiny_split
from torch import nn

from macer.certification.target import PreparedModel, Target
from macer.runs.model_file import ModelCard
from macer.server.app import Service
from macer.server.limits import Keys, Limits
from macer.server.served import Seed, Served

SEED = 7
IMAGES = tiny_split(8).images


def bands() -> nn.Module:
    """Each logit is the sum of the columns where its class has a bright band."""
    linear = nn.Linear(64, 3)
    with torch.no_grad():
        linear.bias.zero_()
        for c in range(3):
            grid = torch.zeros(8, 8)
            grid[:, 3 * c : 3 * c + 2] = 1.0
            linear.weight[c] = grid.flatten()
    return nn.Sequential(nn.Flatten(), linear)


def served(name: str, sigma: float, network: nn.Module | None = None) -> Served:
    """A model as a service holds it."""
    model = network or bands()
    card = ModelCard("tiny", CLASSES, (1, 8, 8), (0.0,), (1.0,), sigma, "tiny")
    target = Target(model, name, "tiny", sigma, (1, 8, 8), 3, f"{name}b" * 32)
    return Served(name, card, PreparedModel(target, model, "fp32", False, torch.device("cpu")))


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    """(1, height, width) uint8 as a file."""
    file = io.BytesIO()
    Image.fromarray(pixels[0]).save(file, kind)
    return file.getvalue()


def service(
    *,
    seed: int | None = SEED,
    keys: Keys | None = None,
    network: nn.Module | None = None,
    **limits: Any,
) -> Service:
    models = {"a": served("a", 0.5, network), "b": served("b", 1.0, network)}
    return Service(models, limits=Limits(**limits), seed=Seed.chosen(seed), keys=keys or Keys())
