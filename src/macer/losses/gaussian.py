"""Gaussian training: the cross-entropy of noisy images.  [Cohen+19]"""

from torch import Tensor

from macer.losses.batch import Batch, at_least_float32


def gaussian(batch: Batch) -> Tensor:
    """Gaussian training's objective, one loss per image; it has no settings."""
    return gaussian_losses(batch.logits(), batch.labels)


def gaussian_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of the noisy copies' cross-entropies, one value per image.

    loss = −1/k Σⱼ log z_y(x + ηⱼ),  z = softmax(u)                                [Cohen+19]

    The paper has k = 1. MACER's cross-entropy averages z over the copies before the logarithm,
    and is the same for k = 1.

    Args:
        logits: (images, k, classes), the network's outputs u on k noisy copies of each image.
        labels: (images,) int64.
    """
    u = at_least_float32(logits)
    log_z = u.log_softmax(dim=2)
    every_copy = labels[:, None, None].expand(-1, u.shape[1], 1)
    return -log_z.gather(2, every_copy).squeeze(2).mean(dim=1)
