"""Denoised smoothing: train a denoiser before a classifier that stays as it is.  [Salman+20]"""

import torch
from torch import Tensor, nn

from macer.losses.batch import Batch, at_least_float32
from macer.losses.gaussian import gaussian_losses
from macer.models.denoisers import Denoised
from macer.models.networks import Normalize
from macer.system.errors import Mistake
from macer.system.ranges import NonNegative


def denoising(batch: Batch, *, lam: NonNegative = 1.0, mse: NonNegative = 0.0) -> Tensor:
    """Denoised smoothing's objectives, one loss per image; labels are not used.

    Args:
        lam: Weight λ of the cross-entropy of the classifier's own label without noise.
        mse: Weight of the mean squared error of the denoised pixels.
    """
    normalize, network = _parts(batch.network)
    clean = normalize(batch.images)
    with torch.no_grad():
        labels = network.classifier(clean).argmax(dim=1)
    noisy = (batch.noise + batch.images[:, None]).flatten(0, 1)
    denoised = network.denoiser(normalize(noisy))
    logits = network.classifier(denoised).view(len(clean), batch.noise.shape[1], -1)
    errors = (denoised.view_as(batch.noise) - clean[:, None]) * normalize.std  # in [0, 1]'s units
    return denoising_losses(logits, labels, errors, lam=lam, mse=mse)


def denoising_losses(
    logits: Tensor, labels: Tensor, errors: Tensor, *, lam: float | Tensor, mse: float
) -> Tensor:
    """The stability of the classifier's label, and the mean squared error of the pixels.

    loss = −λ/k Σⱼ log z_f(x)(D(x + ηⱼ)) + m/(kd) Σⱼ ‖D(x + ηⱼ) − x‖²₂,  z = softmax(u)  [Salman+20]

    f(x) is the classifier's label of the image itself. The paper has k = 1, and either term alone,
    or the second in one training and the first in another after it.

    Args:
        logits: (images, k, classes), the classifier's outputs u on k denoised copies of each.
        labels: (images,) int64, f(x).
        errors: (images, k, channels, height, width), D(x + ηⱼ) − x; d pixels.
    """
    squared = at_least_float32(errors).square().flatten(1).mean(dim=1)
    return lam * gaussian_losses(logits, labels) + mse * squared


def _parts(model: nn.Module) -> tuple[Normalize, Denoised]:
    """The normalisation, and the network with its denoiser."""
    match list(model.children()):
        case [Normalize() as normalize, Denoised() as network]:
            return normalize, network
    raise Mistake("denoiser must be given with the loss denoising; add --denoiser dncnn")
