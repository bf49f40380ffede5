"""Semi-supervised training: a first model labels the images that have no labels.

ỹᵢ = argmax_c Σⱼ 1[f(xᵢ + ηⱼ) = c],  i > L,  with f the first model                   [Carmon+19]
loss = 1/n Σᵢ wᵢ lossᵢ,  wᵢ = 1 for i ≤ L, else w

L is `labelled`, f is `pseudo`, w is `pseudo_weight`, and σ is the recipe's. The sum is divided by
the batch's n images and not by Σ wᵢ, so that it is an unbiased estimate of one objective for any
share of labelled images in the batch. Without a first model, training uses the L labelled images
only; this is how a first model is made.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.sets import Split
from macer.recipes import TrainRecipe
from macer.smoothing.streams import Purpose
from macer.system.errors import Mistake
from macer.training.votes import count_votes, sampled_logits

SAMPLES = 32  # votes for each label

HIDDEN = -1  # the label of an image whose label is hidden; no class


def without_hidden_labels(split: Split, recipe: TrainRecipe) -> Split:
    """The images to train on, without the labels that the recipe hides."""
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
    """The labels, with hidden ones replaced by the first model's majority votes."""
    batches = sampled_logits(
        first,
        images[recipe.labelled :],
        samples=SAMPLES,
        sigma=recipe.sigma,
        seed=recipe.seed,
        purpose=Purpose.PSEUDO_LABELS,
        device=images.device,
    )
    votes = count_votes(batches)
    return torch.cat([labels[: recipe.labelled], votes.argmax(dim=1).to(labels)])


def loss_weights(images: int, recipe: TrainRecipe) -> Tensor:
    """wᵢ of each image, (images,)."""
    weights = np.ones(images, dtype=np.float32)
    if recipe.pseudo:
        weights[recipe.labelled :] = recipe.pseudo_weight
    return torch.from_numpy(weights)
