"""SmoothMix: less confidence on the way to an adversarial example.  [Jeong+21]"""

import math

import torch
from torch import Tensor

from macer.attacks.images import pgd
from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.recipes.schedules import attack_share


def smoothmix(batch: Batch) -> Tensor:
    """SmoothMix's objective, one loss an image.

    x̃: T steps of length α from x up −log z̄_y, in [0, 1] and in no ball             [Jeong+21]
    x̂ = (1 − w) x + w x̃,  w ~ U(0, ½)

    The noise is the same in the attack and in both terms of the loss. η rises over the first
    epochs, as in the authors' code.
    """
    recipe = batch.recipe
    w = batch.uniform(len(batch.images)) / 2
    mixed = torch.lerp(batch.images, unbounded_images(batch), w[:, None, None, None])
    return smoothmix_losses(
        batch.logits(),
        batch.logits(mixed),
        batch.labels,
        w,
        eta=recipe.eta * attack_share(recipe, batch.epoch),
    )


def unbounded_images(batch: Batch) -> Tensor:
    """x̃; α is the recipe's step size, or 2σ, which the paper has for CIFAR-10."""
    recipe = batch.recipe
    alpha = recipe.step_size or 2 * recipe.sigma
    return pgd(
        batch.network,
        batch.images,
        batch.labels,
        batch.noise,
        epsilon=recipe.steps * alpha,  # further than this T steps of length α do not lead
        steps=recipe.steps,
        step_size=alpha,
    )


def smoothmix_losses(
    logits: Tensor, mixed_logits: Tensor, labels: Tensor, w: Tensor, *, eta: float
) -> Tensor:
    """Gaussian training plus the divergence from softened targets, one value an image.

    z̄ = 1/m Σⱼ z(x + ηⱼ),  z = softmax(u)
    ŷ = (1 − w) z̄ + w/K                                                            [Jeong+21]
    loss = −1/m Σⱼ log z_y(x + ηⱼ) + η · 1[y = argmax_c z̄_c] · 1/m Σⱼ KL(ŷ ‖ z(x̂ + ηⱼ))

    ŷ is differentiated too, as in the authors' code.

    Args:
        logits: (images, m, classes), the network's outputs u on x + ηⱼ.
        mixed_logits: (images, m, classes), on x̂ + ηⱼ.
        labels: (images,) int64.
        w: (images,), the share of x̃ in x̂.
    """
    u, v = (t if t.dtype == torch.float64 else t.float() for t in (logits, mixed_logits))
    # In the log domain a probability too small for floating point keeps a finite logarithm.
    log_z_bar = u.log_softmax(dim=2).logsumexp(dim=1) - math.log(u.shape[1])
    w = w.to(u.dtype)[:, None]
    log_target = torch.logaddexp((1 - w).log() + log_z_bar, w.log() - math.log(u.shape[2]))
    log_z = v.log_softmax(dim=2).mean(dim=1)
    divergence = (log_target.exp() * (log_target - log_z)).sum(dim=1)
    correct = log_z_bar.argmax(dim=1) == labels
    return gaussian_losses(u, labels) + eta * correct * divergence
