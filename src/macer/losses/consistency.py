"""Consistency regularisation: the noisy copies of an image should agree.  [Jeong+20]"""

import math

import torch
from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.losses.macer import macer_losses


def consistency(batch: Batch) -> Tensor:
    """Consistency's objective, one loss an image."""
    return consistency_losses(batch.logits(), batch.labels, lam=batch.lam, eta=batch.recipe.eta)


def macer_consistency(batch: Batch) -> Tensor:
    """MACER's objective with Consistency's regularisation beside it, one loss an image."""
    recipe = batch.recipe
    return macer_consistency_losses(
        batch.logits(),
        batch.labels,
        sigma=recipe.sigma,
        lam=batch.lam,
        gamma=recipe.gamma,
        beta=recipe.beta,
        consistency=recipe.consistency,
        eta=recipe.eta,
        cross_entropy=recipe.cross_entropy,
    )


def consistency_losses(
    logits: Tensor, labels: Tensor, *, lam: float | Tensor, eta: float
) -> Tensor:
    """Gaussian training plus Consistency's regularisation, one value an image.

    loss = −1/m Σⱼ log z_y(x + ηⱼ) + λ/m Σⱼ KL(z̄ ‖ z(x + ηⱼ)) + η H(z̄)               [Jeong+20]

    Args:
        logits: (images, m, classes), the network's outputs on m noisy copies of each image.
        labels: (images,) int64.
    """
    return gaussian_losses(logits, labels) + consistency_terms(logits, lam=lam, eta=eta)


def macer_consistency_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    sigma: float,
    lam: float | Tensor,
    gamma: float,
    beta: float,
    consistency: float,
    eta: float,
    cross_entropy: str = "smoothed",
) -> Tensor:
    """The terms of `macer_loss` plus Consistency's regularisation, one value an image.

    loss = −log ẑ_y + λσ/2 · 1[x ∈ G] · max{γ − ξ̂, 0}                   [Zhai+20, Alg. 1, line 9]
           + c/k Σⱼ KL(z̄ ‖ zⱼ) + η H(z̄)                                                   [Jeong+20]

    Both are functions of the logits of k noisy copies, so one pass serves both. The cross-entropy
    is MACER's alone, one or the other of `macer_losses`; z̄ is its ẑ at β = 1, and λ's schedule
    leaves c = `consistency` alone.
    """
    objective = macer_losses(
        logits,
        labels,
        sigma=sigma,
        lam=lam,
        gamma=gamma,
        beta=beta,
        cross_entropy=cross_entropy,
    )
    return objective + consistency_terms(logits, lam=consistency, eta=eta)


def consistency_terms(logits: Tensor, *, lam: float | Tensor, eta: float) -> Tensor:
    """The regularisation alone, one value an image.

    z̄ = 1/m Σⱼ z(x + ηⱼ),  z = softmax(u)
    λ/m Σⱼ KL(z̄ ‖ z(x + ηⱼ)) + η H(z̄)                                                    [Jeong+20]

    z̄ is differentiated too. With η = λ this is λ times the mean cross-entropy of z(x + ηⱼ)
    under z̄; with m = 1 the divergence vanishes.
    """
    u = logits if logits.dtype == torch.float64 else logits.float()
    log_z = u.log_softmax(dim=2)
    # In the log domain a probability too small for floating point keeps a finite logarithm.
    log_z_bar = log_z.logsumexp(dim=1) - math.log(u.shape[1])
    z_bar = log_z_bar.exp()
    divergence = (z_bar * (log_z_bar - log_z.mean(dim=1))).sum(dim=1)
    entropy = -(z_bar * log_z_bar).sum(dim=1)
    return lam * divergence + eta * entropy
