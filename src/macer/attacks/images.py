"""ℓ₂ attacks on images through the noise of the softly smoothed classifier.

Randomness is an argument: the start, and the noise vectors, which stay the same during an attack.
The network is in eval mode during an attack, and its weights receive no gradient.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from macer.attacks.geometry import in_ball, in_box, norm, rounded_inside, to_grid, unit
from macer.models.modes import evaluating, network_dtype
from macer.system.errors import Mistake

# Step size of DDN in its last step.  [Rony+19]
_LAST_ALPHA = 0.01


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

    Where the gradient vanishes or is not finite, δ stays. The distance from x to x′ is at most ε
    even after rounding.

    Args:
        images: (images, channels, height, width), float in [0, 1].
        noise: (images, m, channels, height, width), the ηⱼ of each image.
        epsilon: one radius, or (images,) radii.
        step_size: s, one number or (images,).
        start: the first x′, which is projected into the ball; the images themselves by default.
    """
    check_noise(images, noise, steps)
    epsilon = _per_image("epsilon", epsilon, images)
    s = 2 * epsilon / max(steps, 1)
    if step_size is not None:
        s = _per_image("step_size", step_size, images)
    s = s.to(images.dtype)
    delta = torch.zeros_like(images) if start is None else start - images

    def feasible(delta: Tensor) -> Tensor:
        return in_ball(in_box(images, delta) if clamp else delta, epsilon.to(delta.dtype))

    delta = feasible(delta)
    with frozen(model):
        for _ in range(steps):
            direction, _ = _image_ascent(model, images + delta, labels, noise)
            delta = feasible(delta + s * direction)
    x = rounded_inside(images, delta, epsilon)
    return x.clamp(0, 1) if clamp else x


def pgd_on_pixels(
    model: nn.Module,
    pixels: Tensor,
    labels: Tensor,
    noise: Tensor,
    *,
    epsilon: float | Tensor,
    steps: int,
    start: Tensor | None = None,
) -> Tensor:
    """`pgd` of 8-bit images: the 8-bit images that it finds, none farther than ε.

    Args:
        pixels: 255x, (images, channels, height, width) uint8.
        start: the first x′, as `pgd` has it.
    """
    images = pixels.float() / 255
    found = pgd(model, images, labels, noise, epsilon=epsilon, steps=steps, start=start)
    return to_grid(pixels, found.double() - images.double())


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
    """Decoupled direction and norm: the nearest x′ that deceives, scaled to within ε of x.

    δ ← δ + α ∇J(x + δ) / ‖∇J(x + δ)‖₂,  α falls from 1 to 0.01 as a cosine   [Rony+19, Alg. 1]
    ε_k ← (1 − γ) ε_{k−1} if x̃_{k−1} deceives, else (1 + γ) ε_{k−1}
    x̃_k ← clamp(x + ε_k δ/‖δ‖₂, 0, 1)
    returned: the x̃_k nearest to x among those that deceive; x if none does

    x̃ deceives if Σⱼ softmax(u(x̃ + ηⱼ)) is largest at another class than y. As in SmoothAdv
    [Salman+19], the search ignores ε, and its result is then scaled into the ball of radius ε.

    Unlike the paper: δ continues from x̃_k − x, so that clamped pixels do not drift away; nothing
    is rounded to 8 bits; where the gradient vanishes, δ stays.

    Args:
        epsilon: one radius, or (images,) radii.
        first_norm: ε₀.
    """
    check_noise(images, noise, steps)
    epsilon = _per_image("epsilon", epsilon, images)
    if not 0 < gamma < 1:
        raise Mistake(f"gamma must be between 0 and 1, got {gamma}")
    length = _per_image("first_norm", first_norm, images).to(images.dtype)
    delta = nearest = torch.zeros_like(images)
    shortest = torch.full_like(length, math.inf)
    with frozen(model):
        for k in range(1, steps + 1):
            alpha = _LAST_ALPHA + (1 - _LAST_ALPHA) * (1 + math.cos(math.pi * k / steps)) / 2
            direction, log_z = _image_ascent(model, images + delta, labels, noise)
            deceives = _deceives(log_z, labels)
            nearest, shortest = _nearer(delta, deceives, nearest, shortest)
            length = length * torch.where(deceives, 1 - gamma, 1 + gamma)
            delta = length * unit(delta + alpha * direction)
            delta = in_box(images, delta) if clamp else delta
        # Under no_grad, older autocast would keep its cast weights for the training step.
        deceives = _deceives(log_z_bar(model, images + delta, noise).detach(), labels)
    nearest, _ = _nearer(delta, deceives, nearest, shortest)
    x = rounded_inside(images, in_ball(nearest, epsilon.to(nearest.dtype)), epsilon)
    return x.clamp(0, 1) if clamp else x


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """The model in eval mode without gradients of its parameters; afterwards as it was."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    with evaluating(model):
        try:
            for parameter in trainable:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trainable:
                parameter.requires_grad_(True)


def smoothed_loss(log_z_bar: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of the softly smoothed classifier, (images,); differentiable.

    J(x′) = −log z̄_y,  z̄ = 1/m Σⱼ softmax(u(x′ + ηⱼ))                [Salman+19, objective (S)]

    Args:
        log_z_bar: (images, classes), as `log_z_bar` gives it.
    """
    return -log_z_bar.gather(1, labels[:, None]).squeeze(1)


def log_z_bar(model: nn.Module, images: Tensor, noise: Tensor) -> Tensor:
    """log z̄ (images, classes); the mean over copies is taken in the log domain.

    In float32, softmax outputs below 10⁻³⁸ would become 0, and their logarithm and its gradient
    would be useless.
    """
    log_z = noisy_logits(model, images, noise).log_softmax(dim=2)
    return log_z.logsumexp(dim=1) - math.log(noise.shape[1])


def noisy_logits(model: nn.Module, images: Tensor, noise: Tensor) -> Tensor:
    """u(x + ηⱼ), (images, m, classes), in float32 or float64 whatever the network's precision."""
    copies = (noise + images[:, None]).flatten(0, 1)  # in the noise's memory format
    logits: Tensor = model(copies.to(network_dtype(model))).unflatten(0, noise.shape[:2])
    return logits if logits.dtype == torch.float64 else logits.float()


def ascent(
    vectors: Tensor, loss: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """g/‖g‖₂ of each vector, g its gradient of the loss, and the network's log-probabilities.

    Only the vectors are differentiated: the weights keep their gradients as they are.

    Args:
        loss: from the vectors to their losses and the log-probabilities behind them.
    """
    with torch.enable_grad():
        x = vectors.detach().requires_grad_()
        losses, log_z = loss(x)
        [gradient] = torch.autograd.grad(losses.sum(), x)
    return unit(gradient), log_z.detach()


def _image_ascent(
    model: nn.Module, images: Tensor, labels: Tensor, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """∇J/‖∇J‖₂ of each image, and log z̄."""

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        log_z = log_z_bar(model, x, noise)
        return smoothed_loss(log_z, labels), log_z

    return ascent(images, loss)


def _deceives(log_z: Tensor, labels: Tensor) -> Tensor:
    """(images, 1, 1, 1): whether the softly smoothed classifier returns another class."""
    return (log_z.argmax(dim=1) != labels)[:, None, None, None]


def _nearer(
    delta: Tensor, deceives: Tensor, nearest: Tensor, shortest: Tensor
) -> tuple[Tensor, Tensor]:
    """The shortest δ so far that deceives, and its norm."""
    length = norm(delta)
    better = deceives & (length < shortest)
    return torch.where(better, delta, nearest), torch.where(better, length, shortest)


def _per_image(name: str, value: float | Tensor, images: Tensor) -> Tensor:
    """A number, or one number per image, as (images, 1, 1, 1) in float64."""
    if isinstance(value, Tensor):
        if value.shape != images.shape[:1]:
            raise Mistake(
                f"{name} must be a number or have the shape ({len(images)},), "
                f"got {tuple(value.shape)}"
            )
        return value.to(images.device, torch.float64)[:, None, None, None]
    check_not_negative(name, value)
    return images.new_full((len(images), 1, 1, 1), value, dtype=torch.float64)


def check_not_negative(name: str, value: float) -> None:
    """Refuse a negative or infinite number."""
    if not 0 <= value < math.inf:
        raise Mistake(f"{name} must be at least 0, got {value}")


def check_noise(images: Tensor, noise: Tensor, steps: int) -> None:
    """Refuse noise whose shape does not fit the images, and a negative number of steps."""
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
