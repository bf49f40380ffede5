"""CAT-RS: robustness is asked of the images that the noise leaves correct.  [Jeong+23]"""

import torch
from torch import Tensor

from macer.attacks.images import noisy_logits
from macer.attacks.noise import standardised_attack
from macer.losses.batch import Batch, at_least_float32
from macer.recipes.fields import Steps
from macer.system.errors import Mistake
from macer.system.ranges import NonNegative, Positive


def catrs(
    batch: Batch,
    *,
    lam: NonNegative = 1.0,
    epsilon: NonNegative = 1.0,
    steps: Steps = 4,
    step_size: Positive | None = None,
    teacher: str = "",
) -> Tensor:
    """CAT-RS's objective, one loss per image.

    ȳ = 1/m Σⱼ z′(x + ηⱼ),  z′ the teacher's softmax
    η*ⱼ: ηⱼ moved within ε up KL(ȳ ‖ z(x + ηⱼ)), with its mean and deviation kept    [Jeong+23]

    Unlike the paper: ȳ is the teacher's mean softmax over this step's copies of the image as
    augmented, not the votes of 10,000 copies of the image as it is, which would need a pass over
    the data set beforehand and would not know of crops and flips.

    Args:
        lam: Weight λ of the worst copy's divergence.
        epsilon: Largest ℓ₂ length ε of the attack on the noise.
        steps: Steps T of the attack.
        step_size: Length of each step; 2ε/T if it is not given.
        teacher: Run, model file or zoo:NAME whose outputs are the targets.
    """
    logits, y_bar = batch.logits(), expected_outputs(batch, teacher)
    draws = batch.uniform(batch.labels.numel() * logits.shape[1]).view(logits.shape[:2])
    noise = standardised_attack(
        batch.network,
        batch.images,
        y_bar,
        batch.noise,
        epsilon=epsilon,
        steps=steps,
        step_size=step_size,
    )
    return catrs_losses(
        logits,
        batch.logits(noise=noise),
        batch.labels,
        y_bar,
        accepted_copies(logits, batch.labels, draws),
        lam=lam,
    )


def expected_outputs(batch: Batch, teacher: str) -> Tensor:
    """ȳ, (images, classes), without a gradient."""
    if batch.teacher is None:
        raise Mistake(
            f"teacher must be a run or a model file with loss {batch.recipe.loss.name}, "
            f"got {teacher!r}; train one with loss gaussian and the same sigma"
        )
    with torch.no_grad():
        return noisy_logits(batch.teacher, batch.images, batch.noise).softmax(dim=2).mean(dim=1)


def accepted_copies(logits: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
    """M ~ Binomial(m, p̂), at least 1, with p̂ the share of correct copies of an image.

    Args:
        draws: (images, m), uniform in [0, 1); those below p̂ are counted.
    """
    p_hat = (logits.argmax(dim=2) == labels[:, None]).to(draws.dtype).mean(dim=1)
    return (draws < p_hat[:, None]).sum(dim=1).clamp(min=1)


def catrs_losses(
    logits: Tensor,
    attacked_logits: Tensor,
    labels: Tensor,
    targets: Tensor,
    accepted: Tensor,
    *,
    lam: float | Tensor,
) -> Tensor:
    """The cross-entropy of the easiest copies, and for sure images the worst divergence.

    ℓ₍₁₎ ≤ … ≤ ℓ₍ₘ₎: the sorted −log z_y(x + ηⱼ),  z = softmax(u)                      [Jeong+23]
    loss = 1/m Σ_{j ≤ M} ℓ₍ⱼ₎ + λ · 1[M = m] · maxⱼ KL(ȳ ‖ z(x + η*ⱼ))

    Args:
        logits: (images, m, classes), the network's outputs u on x + ηⱼ.
        attacked_logits: (images, m, classes), on x + η*ⱼ.
        labels: (images,) int64.
        targets: (images, classes), ȳ.
        accepted: (images,), M.
    """
    u, v = at_least_float32(logits), at_least_float32(attacked_logits)
    m = u.shape[1]
    every_copy = labels[:, None, None].expand(-1, m, 1)
    log_z_y = u.log_softmax(dim=2).gather(2, every_copy).squeeze(2)
    losses = (-log_z_y).sort(dim=1).values
    easiest = torch.arange(m, device=u.device) < accepted[:, None]
    y_bar = targets.to(u.dtype)[:, None]
    divergences = (torch.xlogy(y_bar, y_bar) - y_bar * v.log_softmax(dim=2)).sum(dim=2)
    sure = accepted == m
    robustness: Tensor = lam * sure * divergences.amax(dim=1)
    return (losses * easiest).mean(dim=1) + robustness
