"""What distinguishes one step from another: its images, their crops and flips, its schedules."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from macer.recipes import TrainRecipe
from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake
from macer.system.processes import Ranks
from macer.training.epochs import epoch_order


class Plan(NamedTuple):
    """Images in their order, and where each is cropped and whether it is flipped."""

    order: Tensor  # (images,)
    offsets: Tensor  # (images, 2)
    flips: Tensor  # (images,)

    def rows(self, start: int, stop: int) -> "Plan":
        """The part of the plan from one image to before another."""
        return Plan(*(values[start:stop] for values in self))


def epoch_plan(
    recipe: TrainRecipe, epoch: int, draw_weights: Tensor, ranks: Ranks, device: torch.device
) -> Plan:
    """The images that this process trains on in an epoch, step after step.

    Args:
        draw_weights: (images,), see `epochs.py`.
    """
    n = len(draw_weights)
    order = epoch_order(recipe, epoch, draw_weights)
    random = stream(recipe.seed, Purpose.AUGMENTATION, epoch)
    offsets = random.integers(0, 2 * recipe.crop + 1, size=(n, 2))
    flips = random.random(n) < 0.5 if recipe.flip else np.zeros(n, dtype=bool)
    steps = n // recipe.batch
    used = (torch.from_numpy(values[: steps * recipe.batch]) for values in (order, offsets, flips))
    return Plan(*(_own_part(values.to(device), steps, ranks) for values in used))


def _own_part(values: Tensor, steps: int, ranks: Ranks) -> Tensor:
    """This process's part of the rows of each step, step after step."""
    by_step = values.view(steps, -1, *values.shape[1:])
    return ranks.part(by_step.transpose(0, 1)).transpose(0, 1).flatten(0, 1)


def part_of_batch(recipe: TrainRecipe, ranks: Ranks) -> int:
    """The images of a step that this process takes."""
    if recipe.batch % ranks.count:
        raise Mistake(
            f"batch must be a multiple of the {ranks.count} processes, got {recipe.batch}"
        )
    return recipe.batch // ranks.count


@dataclass(frozen=True)
class Inputs:
    """What distinguishes one step from another, on the device and always in the same place."""

    rows: Tensor  # (batch,): which images
    offsets: Tensor  # (batch, 2): where to crop them
    flips: Tensor  # (batch,)
    lr: Tensor
    new_lr: Tensor  # of parameters that the initial weights did not give
    lam: Tensor
    decay: Tensor  # of the average
    uniform: dict[int, Tensor]  # the random numbers of an objective, by their count


def inputs_of_step(size: int, device: torch.device) -> Inputs:
    """Memory for the inputs of a step with this many images."""
    rows = torch.zeros(size, dtype=torch.int64, device=device)
    offsets = torch.zeros((size, 2), dtype=torch.int64, device=device)
    lr, new_lr, lam, decay = (torch.zeros((), device=device) for _ in range(4))
    return Inputs(rows, offsets, rows.bool(), lr, new_lr, lam, decay, {})
