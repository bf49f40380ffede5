"""The optimiser that a recipe asks for."""

import torch
from torch import Tensor, nn

from macer.recipes import TrainRecipe
from macer.training.muon import Muon


def make_optimizer(recipe: TrainRecipe, model: nn.Module, lr: Tensor) -> torch.optim.Optimizer:
    """An optimiser that does nothing in a step whose `found_inf` is 1.

    Args:
        lr: the learning rate, set before each step.
    """
    optimizer = _muon(recipe, model, lr) if recipe.optimizer == "muon" else _sgd(recipe, model, lr)
    if recipe.momentum or recipe.optimizer == "muon":
        # Made here, not in the first step, whose gradients may be unusable.
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _sgd(recipe: TrainRecipe, model: nn.Module, lr: Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        model.parameters(),
        lr=lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def _muon(recipe: TrainRecipe, model: nn.Module, lr: Tensor) -> torch.optim.Optimizer:
    return Muon(
        model.parameters(),
        lr=lr,
        ratio=recipe.filter_lr / recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
