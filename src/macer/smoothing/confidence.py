"""Confidence bounds of a probability or a mean, and the radius they certify. They need no torch.

Bounds are computed in float64 and rounded to the safe side: a lower bound is never above its exact
value, an upper bound never below it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtri

Floats = NDArray[np.float64]
Samples = int | NDArray[np.int64]  # a number of samples for all images, or one for each

# betaincinv, sqrt and ndtri are good to a few units in the last place; this is more than those.
ULPS = 2.0**-49
DOWN = 1.0 - ULPS


def clopper_pearson_lower(count: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """Lower bound of p at confidence 1 − α, one-sided, from `count` successes in n trials.

    p̲ = the α-quantile of Beta(count, n − count + 1);  0 for count = 0            [Clopper+34]
    """
    count, n = np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64)
    shape = (np.maximum(count, 1.0), n - count + 1.0)
    p: Floats = betaincinv(*shape, alpha) * DOWN
    # betaincinv now and then stops some thousand units above the quantile: p is lowered, in steps
    # that double, until it passes the test that defines it, P(X ≥ count | p) ≤ α.
    step = 2.0**-41
    while (above := betainc(*shape, p) > alpha).any():
        p = np.where(above, p * (1.0 - step), p)
        step = min(2.0 * step, 0.5)
    return np.where(count > 0, p, 0.0)


def clopper_pearson_upper(count: ArrayLike, n: Samples, alpha: float) -> Floats:
    """Upper bound of p at confidence 1 − α, one-sided, from `count` successes in n trials.

    p̄ = 1 − the lower bound of the other outcome's probability;  1 for count = n
    """
    others = clopper_pearson_lower(n - np.asarray(count, dtype=np.float64), n, alpha)
    upper: Floats = np.minimum(np.nextafter(1.0 - others, 2.0), 1.0)
    return upper


def binomial_p_value(n_a: ArrayLike, n_b: ArrayLike) -> Floats:
    """BinomPValue(n_A, n_A + n_B, ½), two-sided, for n_A ≥ n_B.          [Cohen+19, PREDICT]

    2·P(X ≥ n_A), at most 1;  X ~ Binomial(n_A + n_B, ½),  P(X ≥ k) = I_½(k, n − k + 1)

    SciPy's own tail of a binomial distribution, bdtrc, is NaN from n = 2³¹ on.
    """
    n_a, n_b = np.asarray(n_a, dtype=np.float64), np.asarray(n_b, dtype=np.float64)
    # For n_A = 0 there is no vote at all; P = 2·½ then as for a single one.
    value: Floats = np.minimum(2 * betainc(np.maximum(n_a, 1.0), n_b + 1.0, 0.5), 1.0)
    return value


def hoeffding_lower(total: ArrayLike, n: Samples, alpha: float) -> Floats:
    """Lower bound of E X at confidence 1 − α from the sum of n samples of X in [0, 1].

    z̲ = X̄ − √(−log α / 2n)                                    [Zhai+20, Appendix A, Lemma 2]
    """
    bound: Floats = np.asarray(total, dtype=np.float64) / n - np.sqrt(-np.log(alpha) / (2 * n))
    lower: Floats = np.maximum(bound, 0.0) * DOWN
    return lower


def bernstein_lower(total: ArrayLike, squares: ArrayLike, n: Samples, alpha: float) -> Floats:
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
    lower: Floats = np.maximum(bound, 0.0) * DOWN
    return lower


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
