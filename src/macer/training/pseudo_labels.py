"""Semi-supervised training: a first model labels the images that have no labels.

ỹᵢ = argmax_c Σⱼ 1[f(xᵢ + ηⱼ) = c],  i > L:  the first model's, smoothed             [Carmon+19]
loss = 1/n Σᵢ wᵢ lossᵢ,  wᵢ = 1 for i ≤ L, else w

L is `labelled`, f `pseudo`, w `pseudo_weight`, σ the recipe's. The sum is divided by the batch's n
images, not by Σ wᵢ: it then is an unbiased estimate of one objective, whatever share of the batch
has labels. Without a first model the training is of the L labelled images alone, which is how a
first model is made.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.sets import Split
from macer.errors import Mistake
from macer.recipes import TrainRecipe
from macer.smoothing.streams import Purpose
from macer.training.votes import count_votes

SAMPLES = 32  # votes on a label

HIDDEN = -1  # no class: an image whose label was taken away


def without_hidden_labels(split: Split, recipe: TrainRecipe) -> Split:
    """The images to train on; labels that the recipe takes away are gone from here on."""
    if not recipe.labelled:
        return split
    if not recipe.batch <= recipe.labelled < len(split.images):
        raise Mistake(
            f"labelled must be at least batch, {recipe.batch}, and fewer than the "
            f"{len(split.images)} training images, got {recipe.labelled}"
        )
    if not recipe.pseudo:
        return split.part(0, recipe.labelled)
    labels = split.labels.copy()
    labels[recipe.labelled :] = HIDDEN
    return replace(split, labels=labels)


def with_pseudo_labels(
    labels: Tensor, images: Tensor, first: nn.Module, recipe: TrainRecipe
) -> Tensor:
    """The labels, those taken away replaced by the first model's majority votes."""
    votes = count_votes(
        first,
        images[recipe.labelled :],
        samples=SAMPLES,
        sigma=recipe.sigma,
        seed=recipe.seed,
        purpose=Purpose.PSEUDO_LABELS,
        device=images.device,
    )
    return torch.cat([labels[: recipe.labelled], votes.argmax(dim=1).to(labels)])


def loss_weights(images: int, recipe: TrainRecipe) -> Tensor:
    """wᵢ of each image, (images,)."""
    weights = np.ones(images, dtype=np.float32)
    if recipe.pseudo:
        weights[recipe.labelled :] = recipe.pseudo_weight
    return torch.from_numpy(weights)
