"""Consistency regularisation: the noisy copies of an image should agree.  [Jeong+20]"""

import math

from torch import Tensor

from macer.losses.batch import Batch, at_least_float32
from macer.losses.gaussian import gaussian_losses
from macer.system.ranges import NonNegative


def consistency(batch: Batch, *, lam: NonNegative = 10.0, eta: NonNegative = 0.5) -> Tensor:
    """Consistency's objective, one loss per image.

    Args:
        lam: Weight λ of the divergence of the copies from their mean.
        eta: Weight η of the mean's entropy.
    """
    return consistency_losses(batch.logits(), batch.labels, lam=lam, eta=eta)


def consistency_losses(
    logits: Tensor, labels: Tensor, *, lam: float | Tensor, eta: float
) -> Tensor:
    """Gaussian training plus Consistency's regularisation, one value per image.

    loss = −1/m Σⱼ log z_y(x + ηⱼ) + λ/m Σⱼ KL(z̄ ‖ z(x + ηⱼ)) + η H(z̄)               [Jeong+20]

    Args:
        logits: (images, m, classes), the network's outputs on m noisy copies of each image.
        labels: (images,) int64.
    """
    return gaussian_losses(logits, labels) + consistency_terms(logits, lam=lam, eta=eta)


def consistency_terms(logits: Tensor, *, lam: float | Tensor, eta: float) -> Tensor:
    """The regularisation alone, one value per image.

    z̄ = 1/m Σⱼ z(x + ηⱼ),  z = softmax(u)
    λ/m Σⱼ KL(z̄ ‖ z(x + ηⱼ)) + η H(z̄)                                                    [Jeong+20]

    z̄ is differentiated too. With η = λ this is λ times the mean cross-entropy of z(x + ηⱼ)
    under z̄; with m = 1 the divergence vanishes.
    """
    u = at_least_float32(logits)
    log_z = u.log_softmax(dim=2)
    # In the log domain a probability too small for floating point keeps a finite logarithm.
    log_z_bar = log_z.logsumexp(dim=1) - math.log(u.shape[1])
    z_bar = log_z_bar.exp()
    divergence = (z_bar * (log_z_bar - log_z.mean(dim=1))).sum(dim=1)
    entropy = -(z_bar * log_z_bar).sum(dim=1)
    return lam * divergence + eta * entropy
