"""SmoothMix: less confidence on the way to an adversarial example.  [Jeong+21]"""

import math

import torch
from torch import Tensor

from macer.attacks.images import pgd
from macer.losses.batch import Batch, at_least_float32
from macer.losses.gaussian import gaussian_losses
from macer.losses.objective import Settings
from macer.recipes.fields import Natural, Steps
from macer.recipes.schedules import ramp_share
from macer.system.ranges import NonNegative, Positive


def smoothmix(
    batch: Batch,
    *,
    eta: NonNegative = 5.0,
    eta_ramp: Natural = 10,
    steps: Steps = 4,
    step_size: Positive | None = None,
) -> Tensor:
    """SmoothMix's objective, one loss per image.

    x̃: T steps of length α from x up −log z̄_y, in [0, 1] and in no ball             [Jeong+21]
    x̂ = (1 − w) x + w x̃,  w ~ U(0, ½)

    The noise is the same in the attack and in both terms of the loss.

    Args:
        eta: Weight η of the mixed images' term.
        eta_ramp: Epochs over which η rises, as in the authors' code; 0 begins with all of it.
        steps: Steps T of the attack.
        step_size: Length α of each step; 2σ, the paper's for CIFAR-10, if it is not given.
    """
    w = batch.uniform(len(batch.images)) / 2
    far = unbounded_images(batch, steps=steps, step_size=step_size)
    mixed = torch.lerp(batch.images, far, w[:, None, None, None])
    return smoothmix_losses(
        batch.logits(),
        batch.logits(mixed),
        batch.labels,
        w,
        eta=eta * ramp_share(batch.epoch, eta_ramp),
    )


def smoothmix_phase(epoch: float, settings: Settings) -> float:
    """The share of η in an epoch."""
    return ramp_share(epoch, settings["eta_ramp"])


def unbounded_images(batch: Batch, *, steps: int, step_size: float | None) -> Tensor:
    """x̃, the end of T steps of this length, or of 2σ."""
    step_size = 2 * batch.recipe.sigma if step_size is None else step_size
    return pgd(
        batch.network,
        batch.images,
        batch.labels,
        batch.noise,
        epsilon=steps * step_size,  # T steps lead no further than this
        steps=steps,
        step_size=step_size,
    )


def smoothmix_losses(
    logits: Tensor, mixed_logits: Tensor, labels: Tensor, w: Tensor, *, eta: float
) -> Tensor:
    """Gaussian training plus the divergence from softened targets, one value per image.

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
    u, v = at_least_float32(logits), at_least_float32(mixed_logits)
    # In the log domain a probability too small for floating point keeps a finite logarithm.
    log_z_bar = u.log_softmax(dim=2).logsumexp(dim=1) - math.log(u.shape[1])
    w = w.to(u.dtype)[:, None]
    log_target = torch.logaddexp((1 - w).log() + log_z_bar, w.log() - math.log(u.shape[2]))
    log_z = v.log_softmax(dim=2).mean(dim=1)
    divergence = (log_target.exp() * (log_target - log_z)).sum(dim=1)
    correct = log_z_bar.argmax(dim=1) == labels
    return gaussian_losses(u, labels) + eta * correct * divergence
