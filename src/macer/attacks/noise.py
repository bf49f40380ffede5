"""Attacks on the noise: each ηⱼ moves to where the network does worse, and still looks like noise.

The images stay where they are. The network is in eval mode meanwhile, and its weights receive no
gradient.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from macer.attacks.images import check, noisy_logits, under_attack, unit
from macer.errors import Mistake

_PIXELS = (2, 3, 4)


def sphere_attack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    step_size: float,
    steps: int,
) -> Tensor:
    """Move each noise vector up its own loss, at its own length; returns the vectors.  [Sun+24]

    While x + η is classified as y, T times at most:
    η ← η + s g / ‖g‖₂,  g = ∇_η −log z_y(x + η)
    η ← ‖η₀‖₂ η / ‖η‖₂

    A vector that deceives the network is left where it does so first, as in the authors' code.

    Args:
        images: (images, channels, height, width).
        noise: (images, m, channels, height, width), the η₀ of each image.
        step_size: s.
        steps: T.
    """
    check(images, noise, steps)
    _at_least_0("step_size", step_size)
    every_copy = labels[:, None, None].expand(-1, noise.shape[1], 1)

    def loss(log_z: Tensor) -> Tensor:
        return -log_z.gather(2, every_copy)

    length = _norm(noise)
    eta = noise
    with under_attack(model):
        for _ in range(steps):
            direction, log_z = _ascent(model, images, eta, loss)
            deceives = (log_z.argmax(dim=2) != labels[:, None])[..., None, None, None]
            eta = torch.where(deceives, eta, length * _unit(eta + step_size * direction))
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
    """Move each noise vector away from what is expected of it; returns the vectors.  [Jeong+23]

    η ← η + s g / ‖g‖₂,  g = ∇_η KL(ȳ ‖ z(x + η)),  s = 2ε/T
    η ← η₀ + (η − η₀) · min(1, ε / ‖η − η₀‖₂)
    η ← μ₀ + (η − μ) σ₀/σ,  with μ and σ the mean and the standard deviation of η's entries

    Unlike the authors' code: σ is taken about the mean, not about 0. Mean, deviation and with them
    the length of a vector are then what they were, and not only nearly so.

    Args:
        targets: (images, classes), the probabilities ȳ of each image.
        noise: (images, m, channels, height, width), the η₀ of each image.
    """
    check(images, noise, steps)
    _at_least_0("epsilon", epsilon)
    s = 2 * epsilon / max(steps, 1) if step_size is None else step_size
    _at_least_0("step_size", s)

    def loss(log_z: Tensor) -> Tensor:
        return -targets[:, None] * log_z  # KL less the entropy of ȳ, which does not move

    eta = noise
    with under_attack(model):
        for _ in range(steps):
            direction, _ = _ascent(model, images, eta, loss)
            moved = eta + s * direction - noise
            moved = torch.where(_norm(moved) > epsilon, epsilon * _unit(moved), moved)
            eta = _standardised(noise + moved, noise)
    return eta


def _ascent(
    model: nn.Module, images: Tensor, noise: Tensor, loss: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """g / ‖g‖₂ of each noise vector, and log z (images, m, classes) before the step.

    Only the noise is differentiated for: the weights keep their gradients as they are.
    """
    with torch.enable_grad():
        eta = noise.detach().requires_grad_()
        log_z = noisy_logits(model, images, eta).log_softmax(dim=2)
        [gradient] = torch.autograd.grad(loss(log_z).sum(), eta)
    return _unit(gradient), log_z.detach()


def _standardised(noise: Tensor, like: Tensor) -> Tensor:
    """Each vector shifted and scaled to the mean and the standard deviation of another."""
    mean, mean_like = (t.mean(dim=_PIXELS, keepdim=True) for t in (noise, like))
    centred = noise - mean
    deviation, deviation_like = _norm(centred), _norm(like - mean_like)
    # A vector of equal entries has no deviation to divide by.
    scale = deviation_like / torch.where(deviation > 0, deviation, 1.0)
    return mean_like + scale * centred


def _norm(noise: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(noise, dim=_PIXELS, keepdim=True)
    return norm


def _unit(noise: Tensor) -> Tensor:
    return unit(noise.flatten(0, 1)).view(noise.shape)


def _at_least_0(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise Mistake(f"{name} must be at least 0, got {value}")
