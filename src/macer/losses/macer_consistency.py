"""MACER and Consistency together: the radius of the mean, and copies that agree."""

from torch import Tensor

from macer.losses.batch import Batch
from macer.losses.consistency import consistency_terms
from macer.losses.macer import CrossEntropy, macer_losses
from macer.system.ranges import NonNegative, Positive


def macer_consistency(
    batch: Batch,
    *,
    lam: NonNegative = 12.0,
    gamma: Positive = 8.0,
    beta: Positive = 16.0,
    cross_entropy: CrossEntropy = "smoothed",
    consistency: NonNegative = 10.0,
    eta: NonNegative = 0.5,
) -> Tensor:
    """MACER's objective with Consistency's regularisation beside it, one loss per image.

    Args:
        lam: Weight λ of MACER's robustness term.
        gamma: Hinge γ: radii beyond γσ/2 are not pushed further.
        beta: Inverse temperature β of the robustness term.
        cross_entropy: Of the mean of the copies, as in Algorithm 1; or the mean of the copies'.
        consistency: Weight of Consistency's divergence of the copies from their mean.
        eta: Weight η of the mean's entropy.
    """
    return macer_consistency_losses(
        batch.logits(),
        batch.labels,
        sigma=batch.recipe.sigma,
        lam=lam,
        gamma=gamma,
        beta=beta,
        consistency=consistency,
        eta=eta,
        cross_entropy=cross_entropy,
    )


def macer_consistency_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    sigma: float,
    lam: float | Tensor,
    gamma: float,
    beta: float,
    consistency: float,
    eta: float,
    cross_entropy: str = "smoothed",
) -> Tensor:
    """The terms of `macer_loss` plus Consistency's regularisation, one value per image.

    loss = −log ẑ_y + λσ/2 · 1[x ∈ G] · max{γ − ξ̂, 0}                   [Zhai+20, Alg. 1, line 9]
           + c/k Σⱼ KL(z̄ ‖ zⱼ) + η H(z̄)                                                   [Jeong+20]

    Both are functions of the logits of k noisy copies, so one pass serves both. The cross-entropy
    is MACER's alone, one or the other of `macer_losses`; z̄ is its ẑ at β = 1, and λ's schedule
    leaves c = `consistency` alone.
    """
    objective = macer_losses(
        logits,
        labels,
        sigma=sigma,
        lam=lam,
        gamma=gamma,
        beta=beta,
        cross_entropy=cross_entropy,
    )
    return objective + consistency_terms(logits, lam=consistency, eta=eta)
