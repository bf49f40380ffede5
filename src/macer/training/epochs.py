"""Which images an epoch sees: each once; or hard ones never and easy ones more often.

From epoch T on, in epochs of as many steps as before:                                  [Sun+24]
p̂ᵢ = Σⱼ 1[f(xᵢ + ηⱼ) = yᵢ] / n,  in eval mode
i is dropped if p̂ᵢ < p_t at epoch T,  n = 100
i is drawn with probability ∝ σΦ⁻¹(p̲(max{p̂ᵢ, ¾})), with replacement,  n = 16

p̲ is Clopper and Pearson's lower bound at α = 0.1: the weight is the radius that CERTIFY would give.
T is `drop_epoch`, p_t `drop_below`; the weights are updated at T and every `reweight_every` epochs.
n, α and the order of things are those of the authors' code. Unlike it: p̂ is measured on the
images as they are, without crops and flips.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macer.recipes import TrainRecipe
from macer.smoothing.confidence import Floats, clopper_pearson_lower, radius_lower
from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake
from macer.training.votes import count_votes, sampled_logits

DROP_SAMPLES = 100
WEIGHT_SAMPLES = 16
WEIGHT_ALPHA = 0.1
LEAST_SHARE = 0.75  # a harder image is drawn as often as one with this p̂


def epoch_order(recipe: TrainRecipe, epoch: int, weights: Tensor) -> NDArray[np.int64]:
    """The images of an epoch in their order, as many as there are weights."""
    random = stream(recipe.seed, Purpose.ORDER, epoch)
    if not _has_dropped(recipe, epoch):
        return random.permutation(len(weights))
    return random.choice(len(weights), size=len(weights), p=(weights / weights.sum()).numpy())


def weights_are_due(recipe: TrainRecipe, epoch: int) -> bool:
    """Whether weights are updated at the beginning of this epoch, counted from 0."""
    since = epoch - recipe.drop_epoch
    return _has_dropped(recipe, epoch) and since % recipe.reweight_every == 0


def _has_dropped(recipe: TrainRecipe, epoch: int) -> bool:
    return 0 < recipe.drop_epoch <= epoch


def updated_weights(
    recipe: TrainRecipe,
    epoch: int,
    weights: Tensor,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
) -> Tensor:
    """The images' weights from this epoch on; a dropped image keeps weight 0.

    Args:
        weights: (images,) float64 on the CPU, those until now.
        images: (images, channels, height, width) uint8, or other inputs, float32.
    """

    def right(kept: Tensor, samples: int, purpose: Purpose) -> NDArray[np.int64]:
        places = kept.to(images.device)
        return _right_votes(
            model, images[places], labels[places], recipe, epoch, samples=samples, purpose=purpose
        )

    kept = weights.nonzero().squeeze(1)
    if epoch == recipe.drop_epoch:
        p_hat = right(kept, DROP_SAMPLES, Purpose.DROPPING) / DROP_SAMPLES
        kept = kept[torch.from_numpy(p_hat >= recipe.drop_below)]
        if not len(kept):
            raise Mistake(
                f"drop_below must leave images to train on, got {recipe.drop_below}: none is so "
                f"accurate under noise at epoch {epoch}; lower drop_below or raise drop_epoch"
            )
    weights = torch.zeros_like(weights)
    weights[kept] = torch.from_numpy(
        weights_of_votes(
            right(kept, WEIGHT_SAMPLES, Purpose.WEIGHTS), WEIGHT_SAMPLES, sigma=recipe.sigma
        )
    )
    return weights


def weights_of_votes(right: NDArray[np.int64], n: int, *, sigma: float) -> Floats:
    """σΦ⁻¹(p̲(max{p̂, ¾})) of `right` among n votes, which is > 0 for n ≥ 16.        [Sun+24]"""
    count = np.maximum(right, math.floor(LEAST_SHARE * n))
    return radius_lower(clopper_pearson_lower(count, n, WEIGHT_ALPHA), sigma)


def _right_votes(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    recipe: TrainRecipe,
    epoch: int,
    *,
    samples: int,
    purpose: Purpose,
) -> NDArray[np.int64]:
    """How many of its noisy copies the network labels right, for each image."""
    batches = sampled_logits(
        model,
        images,
        samples=samples,
        sigma=recipe.sigma,
        seed=recipe.seed,
        purpose=purpose,
        chunk=epoch,
        device=images.device,
    )
    votes = count_votes(batches)
    right: NDArray[np.int64] = votes.gather(1, labels.cpu()[:, None]).squeeze(1).numpy()
    return right
