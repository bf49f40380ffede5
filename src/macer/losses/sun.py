"""Sun et al.: Gaussian training on attacked noise, of images that are not too hard.  [Sun+24]"""

from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.losses.hard_noise import hardened


def sun(batch: Batch) -> Tensor:
    """Sun's objective, one loss an image.

    η*ⱼ: ηⱼ moved up the loss of x + ηⱼ, at its own length, until it deceives       [Sun+24]
    loss = −1/m Σⱼ log z_y(x + η*ⱼ),  z = softmax(u)

    The attack begins when the hard images are dropped, as in the authors' code; until then, and
    with no steps, this is Gaussian training. The dropping and the weights are the trainer's.
    """
    if batch.epoch < batch.recipe.drop_epoch:
        return gaussian_losses(batch.logits(), batch.labels)
    return gaussian_losses(hardened(batch).logits(), batch.labels)
