"""Sun et al.: Gaussian training on attacked noise, of images that are not too hard.  [Sun+24]"""

from dataclasses import replace

from torch import Tensor

from macer.attacks.noise import sphere_attack
from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.losses.objective import Settings
from macer.recipes.fields import Natural, Steps
from macer.system.ranges import NonNegative


def sun(
    batch: Batch,
    *,
    steps: Steps = 4,
    step_size: NonNegative = 0.25,
    attack_epoch: Natural = 0,
) -> Tensor:
    """Sun's objective, one loss per image.

    η*ⱼ: ηⱼ moved up the loss of x + ηⱼ, at its own length, until it deceives       [Sun+24]
    loss = −1/m Σⱼ log z_y(x + η*ⱼ),  z = softmax(u)

    Until the attack begins, and with no steps, this is Gaussian training. In the authors' code it
    begins when the hard images are dropped; the recipe's `drop_epoch` drops and weighs images.

    Args:
        steps: Steps T of the attack on the noise.
        step_size: Length of each step.
        attack_epoch: Epoch at which the attack begins.
    """
    if batch.epoch < attack_epoch:
        return gaussian_losses(batch.logits(), batch.labels)
    attacked = with_attacked_noise(batch, steps=steps, step_size=step_size)
    return gaussian_losses(attacked.logits(), batch.labels)


def sun_phase(epoch: float, settings: Settings) -> bool:
    """Whether the attack has begun."""
    return bool(epoch >= settings["attack_epoch"])


def with_attacked_noise(batch: Batch, *, steps: int, step_size: float) -> Batch:
    """The batch with its noise moved.

    η*ⱼ: ηⱼ moved up the loss of x + ηⱼ, at its own length, until it deceives       [Sun+24]
    """
    noise = sphere_attack(
        batch.network,
        batch.images,
        batch.labels,
        batch.noise,
        step_size=step_size,
        steps=steps,
    )
    return replace(batch, noise=noise)
