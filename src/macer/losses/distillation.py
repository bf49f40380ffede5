"""Distillation: the outputs on noisy copies should be a teacher's.  [Hinton+15]"""

from typing import Literal

import torch
from torch import Tensor

from macer.attacks.images import noisy_logits
from macer.losses.batch import Batch, at_least_float32

Targets = Literal["copies", "mean"]


def teachers_logits(batch: Batch) -> Tensor:
    """The teacher's outputs (images, k, classes) on the batch's copies, without a gradient."""
    assert batch.teacher is not None
    with torch.no_grad():
        return noisy_logits(batch.teacher, batch.images, batch.noise)


def distillation_term(
    logits: Tensor, teachers: Tensor, *, temperature: float, targets: Targets
) -> Tensor:
    """The divergence of a network's outputs from a teacher's, one value per image.

    tⱼ = softmax(v(x + ηⱼ) / T),  zⱼ = softmax(u(x + ηⱼ) / T)                        [Hinton+15]
    copies: T²/k Σⱼ KL(tⱼ ‖ zⱼ)
    mean:   T²/k Σⱼ KL(t̄ ‖ zⱼ),  t̄ = 1/k Σⱼ tⱼ, the teacher smoothed

    Unlike the paper: the entropy of the targets is subtracted, so that the term is 0 where the
    outputs are the teacher's. Gradients are the same.

    Args:
        logits: (images, k, classes), the network's outputs u on k noisy copies of each image.
        teachers: (images, k, classes), v, the teacher's on the same copies.
        temperature: T; T² keeps the size of the gradients.
    """
    u, v = at_least_float32(logits), at_least_float32(teachers)
    t = (v / temperature).softmax(dim=2)
    if targets == "mean":
        t = t.mean(dim=1, keepdim=True)
    log_z = (u / temperature).log_softmax(dim=2)
    divergences = (torch.xlogy(t, t) - t * log_z).sum(dim=2)
    return temperature**2 * divergences.mean(dim=1)
