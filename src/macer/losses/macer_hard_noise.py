"""MACER and Consistency together, on noise that was moved up the loss."""

from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.distillation import Targets, distillation_term, teachers_logits
from macer.losses.macer import CrossEntropy
from macer.losses.macer_consistency import macer_consistency_losses
from macer.losses.sun import with_attacked_noise
from macer.recipes.fields import Steps
from macer.system.errors import Mistake
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
    teacher: str = "",
    distillation: NonNegative = 0.0,
    temperature: Positive = 1.0,
    targets: Targets = "copies",
) -> Tensor:
    """The objective of `macer_consistency` at x + η*ⱼ, one loss per image.

    With a teacher, its weighted `distillation_term` on the same copies is added.

    Args:
        lam: Weight λ of MACER's robustness term.
        gamma: Hinge γ: radii beyond γσ/2 are not pushed further.
        beta: Inverse temperature β of the robustness term.
        cross_entropy: Of the mean of the copies, as in Algorithm 1; or the mean of the copies'.
        consistency: Weight of Consistency's divergence of the copies from their mean.
        eta: Weight η of the mean's entropy.
        steps: Steps T of the attack on the noise.
        step_size: Length of each step.
        teacher: Run, model file or zoo:NAME whose outputs the network's should be; may be empty.
        distillation: Weight of the divergence from the teacher's outputs.
        temperature: Temperature T of both outputs there.
        targets: The teacher's outputs on each copy, or their mean over the copies.
    """
    _check_teacher(teacher, distillation)
    attacked = with_attacked_noise(batch, steps=steps, step_size=step_size)
    logits = attacked.logits()
    losses = macer_consistency_losses(
        logits,
        batch.labels,
        sigma=batch.recipe.sigma,
        lam=lam,
        gamma=gamma,
        beta=beta,
        cross_entropy=cross_entropy,
        consistency=consistency,
        eta=eta,
    )
    if not distillation:
        return losses
    v = teachers_logits(attacked)
    term = distillation_term(logits, v, temperature=temperature, targets=targets)
    return losses + distillation * term


def _check_teacher(teacher: str, distillation: float) -> None:
    """Refuse a teacher that would have no effect, and a weight without a teacher."""
    if distillation and not teacher:
        raise Mistake(
            f"teacher must be given with distillation {distillation:g}, got none; add --teacher RUN"
        )
    if teacher and not distillation:
        raise Mistake(
            f"distillation must be > 0 with the teacher {teacher}, got 0; add --distillation 1"
        )
