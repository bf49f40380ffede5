"""SmoothAdv: adversarial training of the smoothed classifier.  [Salman+19]"""

from torch import Tensor

from macer.attacks.images import ddn, pgd
from macer.losses.batch import Batch
from macer.losses.gaussian import gaussian_losses
from macer.recipes.schedules import attack_share


def smoothadv(batch: Batch) -> Tensor:
    """SmoothAdv's objective, one loss an image.

    x′ ≈ argmax over ‖x′ − x‖₂ ≤ ε of −log 1/m Σⱼ z_y(x′ + ηⱼ),  z = softmax(u)     [Salman+19, (S)]
    loss = −1/m Σⱼ log z_y(x′ + ηⱼ)                                        [Salman+19, Pseudocode 1]

    The noise is the same in the attack and in the loss. ε rises over the first epochs. With ε = 0
    this is Gaussian training.
    """
    return gaussian_losses(batch.logits(attacked_images(batch)), batch.labels)


def attacked_images(batch: Batch) -> Tensor:
    """x′ by the recipe's attack, in [0, 1] and within ε of x."""
    recipe = batch.recipe
    epsilon = recipe.epsilon * attack_share(recipe, batch.epoch)
    attacked = (batch.network, batch.images, batch.labels, batch.noise)
    if recipe.attack == "ddn":
        # Its first norm follows ε as that rises, as in the authors' code.
        return ddn(*attacked, epsilon=epsilon, steps=recipe.steps, first_norm=epsilon)
    step_size = recipe.step_size or None  # 2ε/T
    return pgd(*attacked, epsilon=epsilon, steps=recipe.steps, step_size=step_size)
