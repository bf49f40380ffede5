"""Closed forms: the certified radius and the lower confidence bounds that feed it.

`certified_radius` is what training maximises; `radius_lower` is what certification states. Bounds
are computed in float64 and rounded down, so that none of them is ever above its exact value.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtri
from torch import Tensor
from torch.special import ndtri as Phi_inv

Floats = NDArray[np.float64]

# betaincinv, sqrt and ndtri are good to a few units in the last place; this is more than those.
_DOWN = 1.0 - 2.0**-49


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
    radius: Floats = sigma * -ndtri(q_a) * _DOWN + 0.0  # −0.0 + 0.0 = 0.0
    return radius


def clopper_pearson_lower(count: ArrayLike, n: int, alpha: float) -> Floats:
    """Lower bound of p at confidence 1 − α, one-sided, from `count` successes in n trials.

    p̲ = the α-quantile of Beta(count, n − count + 1);  0 for count = 0   [Clopper & Pearson 1934]
    """
    count = np.asarray(count, dtype=np.float64)
    shape = (np.maximum(count, 1.0), n - count + 1.0)
    p: Floats = betaincinv(*shape, alpha) * _DOWN
    # betaincinv now and then stops some thousand units above the quantile: p is lowered, in steps
    # that double, until it passes the test that defines it, P(X ≥ count | p) ≤ α.
    step = 2.0**-41
    while (above := betainc(*shape, p) > alpha).any():
        p = np.where(above, p * (1.0 - step), p)
        step = min(2.0 * step, 0.5)
    return np.where(count > 0, p, 0.0)


def hoeffding_lower(total: ArrayLike, n: int, alpha: float) -> Floats:
    """Lower bound of E X at confidence 1 − α from the sum of n samples of X in [0, 1].

    z̲ = X̄ − √(−log α / 2n)                                    [Zhai+20, Appendix A, Lemma 2]
    """
    bound: Floats = np.asarray(total, dtype=np.float64) / n - np.sqrt(-np.log(alpha) / (2 * n))
    lower: Floats = np.maximum(bound, 0.0) * _DOWN
    return lower


def bernstein_lower(total: ArrayLike, squares: ArrayLike, n: int, alpha: float) -> Floats:
    """Empirical Bernstein lower bound of E X from Σ Xⱼ and Σ Xⱼ², X in [0, 1].

    S² = (Σ Xⱼ² − (Σ Xⱼ)²/n) / (n − 1)
    z̲ = X̄ − √(2 S² log(2/α) / n) − 7 log(2/α) / 3(n − 1)         [Zhai+20, Appendix A, Thm. 3]
    """
    total = np.asarray(total, dtype=np.float64)
    squares = np.asarray(squares, dtype=np.float64)
    # Σ X² and (Σ X)²/n cancel; each is good to an ulp, so their difference may be 2 ulps short.
    variance = np.maximum(squares - total**2 / n + squares * 2.0**-50, 0.0) / (n - 1)
    log_term = np.log(2 / alpha)
    bound = total / n - np.sqrt(2 * variance * log_term / n) - 7 * log_term / (3 * (n - 1))
    lower: Floats = np.maximum(bound, 0.0) * _DOWN
    return lower
