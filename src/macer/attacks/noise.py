"""Attacks on the noise: each ηⱼ moves to where the network's loss is higher and stays noise-like.

The images do not change. The network is in eval mode during an attack, and its weights receive no
gradient.
"""

import torch
from torch import Tensor, nn

from macer.attacks.geometry import in_ball, norm, unit
from macer.attacks.images import ascent, check_noise, check_not_negative, frozen, noisy_logits


def sphere_attack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    step_size: float,
    steps: int,
) -> Tensor:
    """Move each noise vector up the gradient of its loss and keep its length.          [Sun+24]

    While x + η is classified as y, T times at most:
    η ← η + s g / ‖g‖₂,  g = ∇_η −log z_y(x + η)
    η ← ‖η₀‖₂ η / ‖η‖₂

    A vector stays where it first deceives the network, as in the authors' code.

    Args:
        images: (images, channels, height, width).
        noise: (images, m, channels, height, width), the η₀ of each image.
        step_size: s.
        steps: T.
    """
    check_noise(images, noise, steps)
    check_not_negative("step_size", step_size)
    labels_of_copies = labels[:, None, None].expand(-1, noise.shape[1], 1)

    def loss(eta: Tensor) -> tuple[Tensor, Tensor]:
        log_z = noisy_logits(model, images, eta).log_softmax(dim=2)
        return -log_z.gather(2, labels_of_copies), log_z

    length = norm(noise)
    eta = noise
    with frozen(model):
        for _ in range(steps):
            direction, log_z = ascent(eta, loss)
            deceives = (log_z.argmax(dim=2) != labels[:, None])[..., None, None, None]
            eta = torch.where(deceives, eta, length * unit(eta + step_size * direction))
    return eta


def standardised_attack(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    noise: Tensor,
    *,
    epsilon: float,
    steps: int,
    step_size: float | None = None,
) -> Tensor:
    """Move each noise vector away from its targets; keep mean and deviation.       [Jeong+23]

    η ← η + s g / ‖g‖₂,  g = ∇_η KL(ȳ ‖ z(x + η)),  s = 2ε/T
    η ← η₀ + (η − η₀) · min(1, ε / ‖η − η₀‖₂)
    η ← μ₀ + (η − μ) σ₀/σ,  with μ and σ the mean and the standard deviation of η's entries

    Unlike the authors' code: σ is taken about the mean, not about 0. Then the mean, the deviation
    and the length of a vector do not change at all, instead of changing a little.

    Args:
        targets: (images, classes), the probabilities ȳ of each image.
        noise: (images, m, channels, height, width), the η₀ of each image.
    """
    check_noise(images, noise, steps)
    check_not_negative("epsilon", epsilon)
    s = 2 * epsilon / max(steps, 1) if step_size is None else step_size
    check_not_negative("step_size", s)

    def loss(eta: Tensor) -> tuple[Tensor, Tensor]:
        log_z = noisy_logits(model, images, eta).log_softmax(dim=2)
        return -targets[:, None] * log_z, log_z  # KL without the entropy of ȳ, a constant

    eta = noise
    with frozen(model):
        for _ in range(steps):
            direction, _ = ascent(eta, loss)
            moved = in_ball(eta + s * direction - noise, epsilon)
            eta = _standardised(noise + moved, noise)
    return eta


def _standardised(noise: Tensor, like: Tensor) -> Tensor:
    """Each vector of `noise` with the mean and the standard deviation of its vector of `like`."""
    pixels = (2, 3, 4)
    mean, mean_like = (t.mean(dim=pixels, keepdim=True) for t in (noise, like))
    centred = noise - mean
    deviation, deviation_like = norm(centred), norm(like - mean_like)
    # A vector of equal entries has no deviation to divide by.
    scale = deviation_like / torch.where(deviation > 0, deviation, 1.0)
    return mean_like + scale * centred
