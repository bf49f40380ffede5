"""Gaussian training: the cross-entropy of noisy images.  [Cohen+19]"""

import torch
from torch import Tensor

from macer.losses.batch import Batch


def gaussian(batch: Batch) -> Tensor:
    """Gaussian training's objective, one loss an image."""
    return gaussian_losses(batch.logits(), batch.labels)


def gaussian_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean of the noisy copies' cross-entropies, one an image.

    loss = −1/k Σⱼ log z_y(x + ηⱼ),  z = softmax(u)                                [Cohen+19]

    The paper has k = 1. MACER's cross-entropy averages z over the copies before the logarithm,
    and is the same for k = 1.

    Args:
        logits: (images, k, classes), the network's outputs u on k noisy copies of each image.
        labels: (images,) int64.
    """
    u = logits if logits.dtype == torch.float64 else logits.float()
    log_z = u.log_softmax(dim=2)
    every_copy = labels[:, None, None].expand(-1, u.shape[1], 1)
    return -log_z.gather(2, every_copy).squeeze(2).mean(dim=1)
