"""A lower bound of p that holds after every sample at once: a confidence sequence.

For each p₀ a gambler bets against p ≤ p₀, sample by sample, as in sequential.py. Her alternatives
are at fixed distances from p₀ in the angle φ = arcsin √p, in which votes vary alike for every p:

W(p₀) = Σⱼ wⱼ (pⱼ/p₀)ᵏ ((1 − pⱼ)/(1 − p₀))ⁿ⁻ᵏ,   pⱼ = sin² min(φ₀ + dⱼ, π/2),   Σⱼ wⱼ = 1

W(p) of the true p is a nonnegative martingale that begins with 1, so that P(W(p) ever reaches 1/α)
≤ α [Ville+39]: with probability 1 − α, p is among the p₀ with W(p₀) < 1/α after every sample.
These p₀ are an interval that ends at 1, since every term falls as φ₀ grows:

d/dφ₀ log termⱼ = 2k [cot(φ₀ + dⱼ) − cot φ₀] − 2(n − k) [tan(φ₀ + dⱼ) − tan φ₀] < 0

where pⱼ < 1, and a term with pⱼ = 1 is wⱼ p₀⁻ᵏ if all votes are alike, else 0. The interval's lower
end p̲ is a function of k, n and α alone: anyone can recompute it from the counts.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from macer.smoothing.confidence import Floats

# dⱼ = 2⁻ʲ, j = 1…12: after n samples the alternative that pays most is about 4/√n away, so these
# serve from a few samples to a hundred million. The last is p = 1, for votes that are all alike.
_DISTANCES = np.array([*(2.0**-j for j in range(1, 13)), math.inf])

# Heaviest where the alternatives serve from 1,000 to 100,000 samples. They add up to 1 exactly.
_WEIGHTS = np.array([1, 1, 2, 3, 4, 4, 3, 2, 1, 1, 1, 1, 8]) / 32

# Angles, sines, ratios, logarithms, products and sums are each good to an ulp or two, 2⁻⁵²; this
# exceeds what a term adds up.
_ERROR = 2.0**-48

_HALVINGS = 54


def confidence_sequence_lower(count: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """p̲ from `count` successes in n trials; P(p̲ ≥ p after any n) ≤ α, over all n at once.

    p̲ = the p₀ with W(p₀) = 1/α, from below;  0 for count = 0

    Args:
        n: one number, or one per count.
    """
    count, n = np.broadcast_arrays(np.asarray(count, np.float64), np.asarray(n, np.float64))
    # W is infinite at 0 and at most 1 at count/n: there every alternative is less likely.
    low, high = np.zeros(count.shape), count / np.maximum(n, 1.0)
    for _ in range(_HALVINGS):
        p0 = (low + high) / 2
        rejected = (log_wealth(count, n, p0) >= -math.log(alpha)) & (count > 0)
        low, high = np.where(rejected, p0, low), np.where(rejected, high, p0)
    return low


def log_wealth(count: Floats, n: Floats, p0: Floats) -> Floats:
    """log W(p₀), never above its exact value; the shapes are the same."""
    k, others, p = count[..., None], (n - count)[..., None], np.maximum(p0, 1e-300)[..., None]
    # π/2 − φ₀, without the cancellation of π/2 − arcsin √p near 1, and of 1 − p near 0.
    small = np.pi / 2 - np.arcsin(np.sqrt(p))
    angle0 = np.where(p < 2.0**-10, small, np.arcsin(np.sqrt(1.0 - p)))
    angle = np.maximum(angle0 - _DISTANCES, 0.0)
    gains = k * np.log(np.cos(angle) ** 2 / p)
    losses = xlogy(others, np.sin(angle) ** 2 / (1.0 - p))  # 0 for no others, also at pⱼ = 1
    # The angle is good to an ulp of angle0: so much of it moves the cosine and the sine.
    moved = k * np.tan(angle) * angle0
    moved += others * np.divide(angle0, angle, out=np.zeros_like(angle), where=angle > 0)
    error = _ERROR * (2 * (k + others) + moved + gains - losses + 8)
    total: Floats = np.logaddexp.reduce(np.log(_WEIGHTS) + gains + losses - error, axis=-1)
    return total
