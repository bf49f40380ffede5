"""Stability training: noise should not change the outputs.  [Li+19]"""

from torch import Tensor

from macer.losses.batch import Batch, at_least_float32
from macer.losses.gaussian import gaussian_losses
from macer.system.ranges import NonNegative


def stability(batch: Batch, *, lam: NonNegative = 2.0) -> Tensor:
    """Stability training's objective, one loss per image; the network also sees x without noise.

    Args:
        lam: Weight λ of the stability term.
    """
    clean = batch.network(batch.images)
    return stability_losses(clean, batch.logits(), batch.labels, lam=lam)


def stability_losses(
    clean: Tensor, logits: Tensor, labels: Tensor, *, lam: float | Tensor
) -> Tensor:
    """Cross-entropy without noise, plus that of the noisy outputs under the clean ones.

    loss = −log z_y(x) − λ/k Σⱼ Σ_c z_c(x) log z_c(x + ηⱼ),  z = softmax(u)             [Li+19]

    Both z(x) and z(x + ηⱼ) are differentiated. The paper has k = 1.

    Args:
        clean: (images, classes), the network's outputs u on the images themselves.
        logits: (images, k, classes), on k noisy copies of each.
        labels: (images,) int64.
    """
    u, v = at_least_float32(clean), at_least_float32(logits)
    log_z = v.log_softmax(dim=2).mean(dim=1)
    stability_term = -(u.softmax(dim=1) * log_z).sum(dim=1)
    return gaussian_losses(u[:, None], labels) + lam * stability_term
