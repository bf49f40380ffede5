"""The certified radius: `certified_radius` for training, `radius_lower` for certification."""

import numpy as np
from scipy.special import ndtri
from torch import Tensor
from torch.special import ndtri as Phi_inv

from macer.smoothing.bounds import DOWN, Floats


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
    Phi_inv_p_a = Phi_inv(p_a) if q_a is None else -Phi_inv(q_a)
    radius: Tensor = sigma / 2 * (Phi_inv_p_a - Phi_inv(p_b))
    return radius


def radius_lower(p_a_lower: Floats, sigma: float) -> Floats:
    """The certified radius at a lower bound of p_A and p_B ≤ 1 − p_A, rounded down.

    σ/2 · [Φ⁻¹(p) − Φ⁻¹(1 − p)] = −σΦ⁻¹(1 − p);  0 where p ≤ ½      [Cohen+19, CERTIFY]

    By SciPy's Φ⁻¹: torch's differs in its last bits with the processor's instruction set.
    """
    q_a = 1.0 - np.maximum(p_a_lower, 0.5)  # exact for ½ ≤ p ≤ 1
    radius: Floats = sigma * -ndtri(q_a) * DOWN + 0.0  # −0.0 + 0.0 = 0.0
    return radius
