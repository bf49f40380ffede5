"""ℓ₂ attacks on the softly smoothed classifier, through its noise.

Randomness is an argument: the noise vectors, the same all through an attack, and the start. The
network is in eval mode meanwhile, and its weights receive no gradient.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from macer.errors import Mistake
from macer.models.modes import evaluating, network_dtype

# Step size of DDN at its end.  [Rony+19]
_LAST_ALPHA = 0.01

# By how much a perturbation is shortened, from as little as helps to all of it, until no rounding
# leaves it outside its ball.
_SHORTER = (0.0, 2.0**-22, 2.0**-18, 2.0**-14, 2.0**-10, 2.0**-6, 1.0)

# A float64 norm is good to about 2⁻⁴⁶ over a million pixels, whatever the order of its sum.
_DOWN = 1.0 - 2.0**-44


def smoothed_loss(model: nn.Module, images: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    """The cross-entropy of the softly smoothed classifier, (images,); differentiable.

    J(x′) = −log( 1/m Σⱼ softmax(u(x′ + ηⱼ))_y )                     [Salman+19, objective (S)]

    Args:
        noise: (images, m, channels, height, width), the ηⱼ of each image.
    """
    return _cross_entropy(_log_z_bar(model, images, noise), labels)


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    epsilon: float | Tensor,
    steps: int,
    step_size: float | Tensor | None = None,
    start: Tensor | None = None,
    clamp: bool = True,
) -> Tensor:
    """Projected gradient ascent on J within ‖δ‖₂ ≤ ε; returns x′.                    [Salman+19]

    δ ← δ + s ∇J(x + δ) / ‖∇J(x + δ)‖₂,  s = 2ε/T
    δ ← clamp(x + δ, 0, 1) − x
    δ ← δ · min(1, ε / ‖δ‖₂)

    Where the gradient vanishes or is not finite, δ stays. The distance from x to what is returned
    is at most ε, also after rounding.

    Args:
        images: (images, channels, height, width), float in [0, 1].
        noise: (images, m, channels, height, width), the ηⱼ of each image.
        epsilon: one radius, or (images,) radii.
        step_size: s, one or (images,).
        start: where to begin, brought into the ball; the images themselves by default.
    """
    check(images, noise, steps)
    epsilon = _per_image("epsilon", epsilon, images)
    s = 2 * epsilon / max(steps, 1)
    if step_size is not None:
        s = _per_image("step_size", step_size, images)
    s = s.to(images.dtype)
    delta = torch.zeros_like(images) if start is None else start - images

    def feasible(delta: Tensor) -> Tensor:
        return _in_ball(_in_box(images, delta) if clamp else delta, epsilon)

    delta = feasible(delta)
    with under_attack(model):
        for _ in range(steps):
            direction, _ = _ascent(model, images + delta, labels, noise)
            delta = feasible(delta + s * direction)
    x = _rounded_inside(images, delta, epsilon)
    return x.clamp(0, 1) if clamp else x


def ddn(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    epsilon: float | Tensor,
    steps: int,
    gamma: float = 0.05,
    first_norm: float = 1.0,
    clamp: bool = True,
) -> Tensor:
    """Decoupled direction and norm: the nearest x′ that deceives, brought within ε of x.

    δ ← δ + α ∇J(x + δ) / ‖∇J(x + δ)‖₂,  α falls from 1 to 0.01 as a cosine   [Rony+19, Alg. 1]
    ε_k ← (1 − γ) ε_{k−1} if x̃_{k−1} deceives, else (1 + γ) ε_{k−1}
    x̃_k ← clamp(x + ε_k δ/‖δ‖₂, 0, 1)
    returned: the x̃_k nearest to x among those that deceive; x if none does

    x̃ deceives if Σⱼ softmax(u(x̃ + ηⱼ)) is largest at another class than y. As in SmoothAdv
    [Salman+19], the search is free and its result is then scaled into the ball of radius ε.

    Unlike the paper: δ goes on from x̃_k − x, so that clamped pixels do not run away; nothing is
    rounded to 8 bits; where the gradient vanishes δ stays.

    Args:
        epsilon: one radius, or (images,) radii.
        first_norm: ε₀.
    """
    check(images, noise, steps)
    epsilon = _per_image("epsilon", epsilon, images)
    if not 0 < gamma < 1:
        raise Mistake(f"gamma must be between 0 and 1, got {gamma}")
    norm = _per_image("first_norm", first_norm, images).to(images.dtype)
    delta = nearest = torch.zeros_like(images)
    least = torch.full_like(norm, math.inf)
    with under_attack(model):
        for k in range(1, steps + 1):
            alpha = _LAST_ALPHA + (1 - _LAST_ALPHA) * (1 + math.cos(math.pi * k / steps)) / 2
            direction, deceives = _ascent(model, images + delta, labels, noise)
            nearest, least = _nearer(delta, deceives, nearest, least)
            norm = norm * torch.where(deceives, 1 - gamma, 1 + gamma)
            delta = norm * unit(delta + alpha * direction)
            delta = _in_box(images, delta) if clamp else delta
        # Not under no_grad: older autocast would keep weights cast there for the training step.
        deceives = _deceives(_log_z_bar(model, images + delta, noise).detach(), labels)
    nearest, _ = _nearer(delta, deceives, nearest, least)
    x = _rounded_inside(images, _in_ball(nearest, epsilon), epsilon)
    return x.clamp(0, 1) if clamp else x


@contextmanager
def under_attack(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, and no gradient of its parameters asked for; then as it was."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    with evaluating(model):
        try:
            for parameter in wanted:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in wanted:
                parameter.requires_grad_(True)


def _log_z_bar(model: nn.Module, images: Tensor, noise: Tensor) -> Tensor:
    """log z̄ (images, classes): the mean over copies is taken in the log domain, for float32.

    Softmax outputs below 10⁻³⁸ would become 0, and their logarithm and its gradient useless.
    """
    log_z = noisy_logits(model, images, noise).log_softmax(dim=2)
    return log_z.logsumexp(dim=1) - math.log(noise.shape[1])


def noisy_logits(model: nn.Module, images: Tensor, noise: Tensor) -> Tensor:
    """u(x + ηⱼ), (images, m, classes), in float32 or float64 whatever the network's precision."""
    copies = (noise + images[:, None]).flatten(0, 1)  # in the noise's layout
    logits: Tensor = model(copies.to(network_dtype(model))).unflatten(0, noise.shape[:2])
    return logits if logits.dtype == torch.float64 else logits.float()


def _ascent(
    model: nn.Module, images: Tensor, labels: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """∇J / ‖∇J‖₂ of each image, and whether it deceives.

    Only the images are differentiated for: the weights keep their gradients as they are.
    """
    with torch.enable_grad():
        x = images.detach().requires_grad_()
        log_z_bar = _log_z_bar(model, x, noise)
        [gradient] = torch.autograd.grad(_cross_entropy(log_z_bar, labels).sum(), x)
    return unit(gradient), _deceives(log_z_bar.detach(), labels)


def _cross_entropy(log_z_bar: Tensor, labels: Tensor) -> Tensor:
    return -log_z_bar.gather(1, labels[:, None]).squeeze(1)


def _deceives(log_z_bar: Tensor, labels: Tensor) -> Tensor:
    """(images, 1, 1, 1): whether the softly smoothed classifier gives another class."""
    return (log_z_bar.argmax(dim=1) != labels)[:, None, None, None]


def _nearer(delta: Tensor, deceives: Tensor, nearest: Tensor, least: Tensor) -> tuple[Tensor, ...]:
    """The shortest δ that deceives so far, and its norm."""
    norm = _norm(delta)
    better = deceives & (norm < least)
    return torch.where(better, delta, nearest), torch.where(better, norm, least)


def _norm(delta: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(delta, dim=(1, 2, 3), keepdim=True)
    return norm


def unit(delta: Tensor) -> Tensor:
    """δ/‖δ‖₂; 0 where δ is 0 or not finite."""
    largest = delta.abs().amax(dim=(1, 2, 3), keepdim=True)
    usable = (largest > 0) & largest.isfinite()  # False for NaN
    # Divided by its largest entry first: the squares of a saturated network's gradient underflow.
    scaled = torch.where(usable, delta / torch.where(usable, largest, 1.0), 0.0)
    return scaled / torch.where(usable, _norm(scaled), 1.0)


def _in_box(images: Tensor, delta: Tensor) -> Tensor:
    return (images + delta).clamp(0, 1) - images


def _in_ball(delta: Tensor, epsilon: Tensor) -> Tensor:
    """δ scaled down to norm ε where it is longer. x is in the box, so this does not leave it."""
    epsilon = epsilon.to(delta.dtype)
    return torch.where(_norm(delta) > epsilon, epsilon * unit(delta), delta)


def _rounded_inside(images: Tensor, delta: Tensor, epsilon: Tensor) -> Tensor:
    """x + δ in floating point, δ shortened where rounding takes the sum out of the ball."""
    result = images
    outside = torch.ones_like(epsilon, dtype=torch.bool)
    for less in _SHORTER:
        result = torch.where(outside, images + (1 - less) * delta, result)
        outside = _norm(result.double() - images.double()) > epsilon * _DOWN
    return result


def _per_image(name: str, value: float | Tensor, images: Tensor) -> Tensor:
    """A number, or one for each image, as (images, 1, 1, 1) in float64."""
    if isinstance(value, Tensor):
        if value.shape != images.shape[:1]:
            raise Mistake(
                f"{name} must be a number or have the shape ({len(images)},), "
                f"got {tuple(value.shape)}"
            )
        return value.to(images.device, torch.float64)[:, None, None, None]
    if not 0 <= value < math.inf:
        raise Mistake(f"{name} must be at least 0, got {value}")
    return images.new_full((len(images), 1, 1, 1), value, dtype=torch.float64)


def check(images: Tensor, noise: Tensor, steps: int) -> None:
    """Refuse noise of another shape than the images', and a negative number of steps."""
    if steps < 0:
        raise Mistake(f"steps must be at least 0, got {steps}")
    if noise.ndim != 5 or len(noise) != len(images) or noise.shape[2:] != images.shape[1:]:
        count, *shape = images.shape
        raise Mistake(
            f"noise must have the shape ({count}, m, {', '.join(map(str, shape))}), "
            f"got {tuple(noise.shape)}"
        )
    if noise.shape[1] < 1:
        raise Mistake("noise must hold at least one vector for each image, got m = 0")
