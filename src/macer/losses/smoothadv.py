"""SmoothAdv: adversarial training of the smoothed classifier.  [Salman+19]"""

from typing import Literal

from torch import Tensor

from macer.attacks.images import ddn, pgd
from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.losses.objective import Settings
from macer.recipes.fields import Natural, Steps
from macer.recipes.schedules import ramp_share
from macer.system.ranges import NonNegative, Positive


def smoothadv(
    batch: Batch,
    *,
    attack: Literal["pgd", "ddn"] = "pgd",
    epsilon: NonNegative = 1.0,
    epsilon_ramp: Natural = 10,
    steps: Steps = 10,
    step_size: Positive | None = None,
) -> Tensor:
    """SmoothAdv's objective, one loss per image.

    x′ ≈ argmax over ‖x′ − x‖₂ ≤ ε of −log 1/m Σⱼ z_y(x′ + ηⱼ),  z = softmax(u)     [Salman+19, (S)]
    loss = −1/m Σⱼ log z_y(x′ + ηⱼ)                                        [Salman+19, Pseudocode 1]

    The noise is the same in the attack and in the loss. With ε = 0 this is Gaussian training.

    Args:
        attack: Attack on the images: projected gradient steps, or DDN.
        epsilon: Largest ℓ₂ length ε of the attack.
        epsilon_ramp: Epochs over which ε rises; 0 begins with all of it.
        steps: Steps T of the attack.
        step_size: Length of each step of PGD; 2ε/T if it is not given.
    """
    share = ramp_share(batch.epoch, epsilon_ramp)
    images = attacked_images(
        batch, attack=attack, epsilon=share * epsilon, steps=steps, step_size=step_size
    )
    return gaussian_losses(batch.logits(images), batch.labels)


def attacked_images(
    batch: Batch, *, attack: str, epsilon: float, steps: int, step_size: float | None
) -> Tensor:
    """x′ by an attack, in [0, 1] and within ε of x."""
    attacked = (batch.network, batch.images, batch.labels, batch.noise)
    if attack == "ddn":
        # Its first norm follows ε as that rises, as in the authors' code.
        return ddn(*attacked, epsilon=epsilon, steps=steps, first_norm=epsilon)
    return pgd(*attacked, epsilon=epsilon, steps=steps, step_size=step_size)


def smoothadv_phase(epoch: float, settings: Settings) -> float:
    """The share of ε in an epoch."""
    return ramp_share(epoch, settings["epsilon_ramp"])
