"""MACER and Consistency together, on noise that was moved up the loss."""

from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.macer import CrossEntropy
from macer.losses.macer_consistency import macer_consistency
from macer.losses.sun import with_attacked_noise
from macer.recipes.fields import Steps
from macer.system.ranges import NonNegative, Positive


def macer_hard_noise(
    batch: Batch,
    *,
    lam: NonNegative = 12.0,
    gamma: Positive = 8.0,
    beta: Positive = 16.0,
    cross_entropy: CrossEntropy = "smoothed",
    consistency: NonNegative = 10.0,
    eta: NonNegative = 0.5,
    steps: Steps = 4,
    step_size: NonNegative = 0.25,
) -> Tensor:
    """The objective of `macer_consistency` at x + η*ⱼ, one loss per image.

    Args:
        lam: Weight λ of MACER's robustness term.
        gamma: Hinge γ: radii beyond γσ/2 are not pushed further.
        beta: Inverse temperature β of the robustness term.
        cross_entropy: Of the mean of the copies, as in Algorithm 1; or the mean of the copies'.
        consistency: Weight of Consistency's divergence of the copies from their mean.
        eta: Weight η of the mean's entropy.
        steps: Steps T of the attack on the noise.
        step_size: Length of each step.
    """
    return macer_consistency(
        with_attacked_noise(batch, steps=steps, step_size=step_size),
        lam=lam,
        gamma=gamma,
        beta=beta,
        cross_entropy=cross_entropy,
        consistency=consistency,
        eta=eta,
    )
