"""The certified radius: `certified_radius` for training, `radius_lower` for certification."""

import numpy as np
from scipy.special import ndtri
from torch import Tensor
from torch.special import ndtri as Phi_inv

from macer.smoothing.confidence import DOWN, ULPS, Floats
from macer.system.typed import require_type


def certified_radius(
    p_a: Tensor, p_b: Tensor, sigma: float, *, q_a: Tensor | None = None
) -> Tensor:
    """The ℓ₂ radius within which a smoothed classifier keeps its class; differentiable.

    CR = σ/2 · [Φ⁻¹(p_A) − Φ⁻¹(p_B)]                       [Cohen+19, Thm. 1; Zhai+20, Thm. 1, 2]

    Hard smoothing takes vote probabilities, soft smoothing mean softmax outputs.

    Args:
        q_a: 1 − p_A, where the caller has it to more digits than the subtraction would give:
            Φ⁻¹(p) near 1 is then −Φ⁻¹(1 − p), accurate where p itself rounds to 1.
    """
    for name, value in (("p_a", p_a), ("p_b", p_b)):
        require_type(name, value, Tensor, "a tensor", "convert it with torch.as_tensor")
    Phi_inv_p_a = Phi_inv(p_a) if q_a is None else -Phi_inv(q_a)
    radius: Tensor = sigma / 2 * (Phi_inv_p_a - Phi_inv(p_b))
    return radius


def radius_lower(p_a: Floats, sigma: float, p_b: Floats | None = None) -> Floats:
    """The certified radius at a lower bound of p_A and an upper bound of p_B, rounded down.

    σ/2 · [Φ⁻¹(p̲_A) − Φ⁻¹(p̄_B)];  0 where p̲_A ≤ p̄_B                 [Cohen+19, Thm. 1]

    By SciPy's Φ⁻¹: torch's differs in its last bits with the processor's instruction set.

    Args:
        p_b: 1 − p̲_A if None, as in CERTIFY; the radius is then σΦ⁻¹(p̲_A).
    """
    p_b = 1.0 - p_a if p_b is None else p_b
    certified = p_a > p_b
    p_a, p_b = np.where(certified, p_a, 0.5), np.where(certified, p_b, 0.5)
    # 1 − p is exact for p ≥ ½, and Φ⁻¹ of a small number is accurate.
    own = np.where(p_a >= 0.5, -ndtri(1.0 - p_a), ndtri(p_a))
    rivals = -ndtri(p_b)
    # Each term is good to a few units in its last place. Where they have different signs, the
    # difference of large terms is a small one, with their errors.
    lost = (np.abs(own) + np.abs(rivals)) - np.abs(own + rivals)
    radius: Floats = sigma / 2 * (own + rivals) * DOWN - sigma / 2 * lost * ULPS
    return np.maximum(radius, 0.0) + 0.0  # −0.0 + 0.0 = 0.0
