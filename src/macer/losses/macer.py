"""Algorithm 1: the MACER objective."""

import math
from numbers import Real
from typing import Literal

import torch
from torch import Tensor

from macer.losses.batch import Batch, at_least_float32
from macer.losses.gaussian import gaussian_losses
from macer.smoothing.radius import certified_radius
from macer.system.errors import Mistake
from macer.system.ranges import NonNegative, Positive, check_ranges
from macer.system.typed import require_type

CrossEntropy = Literal["smoothed", "copies"]
_RANGES = {"sigma": Positive, "lam": NonNegative, "gamma": Positive, "beta": Positive}


def macer(
    batch: Batch,
    *,
    lam: NonNegative = 12.0,
    gamma: Positive = 8.0,
    beta: Positive = 16.0,
    cross_entropy: CrossEntropy = "smoothed",
) -> Tensor:
    """MACER's objective, one loss per image; `macer_loss` has the formula.

    Args:
        lam: Weight λ of the robustness term; 0 with k = 1 is Gaussian training.
        gamma: Hinge γ: radii beyond γσ/2 are not pushed further.
        beta: Inverse temperature β of the robustness term.
        cross_entropy: Of the mean of the copies, as in Algorithm 1; or the mean of the copies'.
    """
    return macer_losses(
        batch.logits(),
        batch.labels,
        sigma=batch.recipe.sigma,
        lam=lam,
        gamma=gamma,
        beta=beta,
        cross_entropy=cross_entropy,
    )


def macer_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    sigma: float,
    lam: float | Tensor,
    gamma: float,
    beta: float,
) -> Tensor:
    """Cross-entropy of the smoothed classifier plus a hinge on its certified radius.

    ẑ(xᵢ) = Σⱼ z(xᵢⱼ) / k                                                [Zhai+20, Alg. 1, line 5]
    G = {i : yᵢ = argmax_c ẑᶜ(xᵢ)}                                                       [line 6]
    ŷᵢ = argmax_{c ≠ yᵢ} ẑᶜ(xᵢ)                                                          [line 7]
    ξ̂ᵢ = Φ⁻¹(ẑ^{yᵢ}(xᵢ)) − Φ⁻¹(ẑ^{ŷᵢ}(xᵢ))                                               [line 8]
    loss = −1/n Σᵢ log ẑ^{yᵢ}(xᵢ) + λσ/2n Σ_{i∈G} max{γ − ξ̂ᵢ, 0}                          [line 9]

    The inverse temperature β sharpens the softmax of the robustness term and of G; the
    cross-entropy has β = 1 [Sec. 5.3, Effect of β]. With k = 1 and λ = 0 this is cross-entropy,
    which is Gaussian training [Cohen+19].

    Args:
        logits: (images, k, classes), the network's outputs on k noisy copies of each image.
        labels: (images,) int64.
    """
    for name, value in (("logits", logits), ("labels", labels)):
        require_type(name, value, Tensor, "a tensor", "convert it with torch.as_tensor")
    _check_shapes(logits, labels)
    settings = {"sigma": sigma, "lam": lam, "gamma": gamma, "beta": beta}
    for name, setting in settings.items():
        require_type(name, setting, (Real, Tensor), "a number")
    check_ranges(_RANGES, settings)
    return macer_losses(logits, labels, sigma=sigma, lam=lam, gamma=gamma, beta=beta).mean()


def _check_shapes(logits: Tensor, labels: Tensor) -> None:
    """Refuse what is no batch of copies' logits with a label for each image."""
    if logits.ndim != 3 or not logits.is_floating_point():
        raise Mistake(
            f"logits must be floats of the shape (images, k, classes), got {_described(logits)}; "
            "of one copy per image they are logits[:, None]"
        )
    images, _, classes = logits.shape
    if labels.shape != (images,) or labels.dtype != torch.int64:
        raise Mistake(
            f"labels must be int64, one per image ({images}), got {_described(labels)}; convert "
            "them with labels.long()"
        )
    if labels.is_cpu and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise Mistake(f"labels must be from 0 to {classes - 1}, got {int(wrong)}")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of the shape {tuple(tensor.shape)}"


def macer_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    sigma: float,
    lam: float | Tensor,
    gamma: float,
    beta: float,
    cross_entropy: str = "smoothed",
) -> Tensor:
    """The terms of `macer_loss`, one per image.

    `cross_entropy` is `smoothed`, −log ẑ^y as in Algorithm 1; or `copies`, −1/k Σⱼ log z^y(xⱼ),
    which is at least that (Jensen) and so a surrogate of the error too [Sec. 4.2, condition C1].
    A copy that is confidently wrong has next to no gradient in the former, all of it in the latter.
    """
    u = at_least_float32(logits)
    classification = {"smoothed": _smoothed_cross_entropy, "copies": gaussian_losses}[cross_entropy]
    return classification(u, labels) + lam * _radius_hinge(u, labels, sigma, gamma, beta)


def _smoothed_cross_entropy(u: Tensor, labels: Tensor) -> Tensor:
    """−log ẑ^y, one value per image; the mean over copies is taken in the log domain."""
    log_z_hat = u.log_softmax(dim=2).logsumexp(dim=1) - math.log(u.shape[1])
    return -log_z_hat.gather(1, labels[:, None]).squeeze(1)


def _radius_hinge(u: Tensor, labels: Tensor, sigma: float, gamma: float, beta: float) -> Tensor:
    """σ/2 · max{γ − ξ̂, 0} = max{γσ/2 − CR, 0} for images in G, 0 for the others."""
    z_hat = (beta * u).softmax(dim=2).mean(dim=1)
    p_a = z_hat.gather(1, labels[:, None]).squeeze(1)
    others = z_hat.scatter(1, labels[:, None], 0.0)
    p_b = others.amax(dim=1)
    q_a = others.sum(dim=1)  # 1 − p_a, accurate where p_a rounds to 1
    in_G = z_hat.argmax(dim=1) == labels
    largest = gamma * sigma / 2

    with torch.no_grad():  # also False where the radius is inf or NaN
        active = in_G & (certified_radius(p_a, p_b, sigma, q_a=q_a) < largest)
    # Φ⁻¹ has an infinite slope at 0. Rows that do not count get a harmless probability before it;
    # masking its result instead would give their gradient 0·inf = NaN.
    half = torch.full_like(p_a, 0.5)
    radius = certified_radius(
        torch.where(active, p_a, half),
        torch.where(active, p_b, half),
        sigma,
        q_a=torch.where(active, q_a, half),
    )
    return torch.where(active, largest - radius, torch.zeros_like(radius))
