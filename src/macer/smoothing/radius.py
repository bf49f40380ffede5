"""The certified radius as a differentiable function; `confidence.radius_lower` rounds it down."""

from numbers import Real

from torch import Tensor
from torch.special import ndtri as Phi_inv

from macer.system.typed import wrong


def certified_radius(
    p_a: Tensor, p_b: Tensor, sigma: float, *, q_a: Tensor | None = None
) -> Tensor:
    """The ℓ₂ radius within which a smoothed classifier keeps its class; differentiable.

    CR = σ/2 · [Φ⁻¹(p_A) − Φ⁻¹(p_B)]                       [Cohen+19, Thm. 1; Zhai+20, Thm. 1, 2]

    Hard smoothing takes vote probabilities, soft smoothing mean softmax outputs.

    Args:
        p_a, p_b: in [0, 1]; the radius is NaN for others.
        q_a: 1 − p_A, where the caller has it to more digits than the subtraction would give:
            Φ⁻¹(p) near 1 is then −Φ⁻¹(1 − p), accurate where p itself rounds to 1.
    """
    for name, value in (("p_a", p_a), ("p_b", p_b)):
        if not isinstance(value, Tensor):
            raise wrong(name, "a tensor", value, "convert it with torch.as_tensor")
    given: object = sigma
    if not isinstance(given, Real | Tensor):
        raise wrong("sigma", "a number", given)
    if not sigma > 0:
        raise wrong("sigma", "> 0", sigma)
    Phi_inv_p_a = Phi_inv(p_a) if q_a is None else -Phi_inv(q_a)
    radius: Tensor = sigma / 2 * (Phi_inv_p_a - Phi_inv(p_b))
    return radius
