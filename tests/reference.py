"""The papers' algorithms, transcribed literally in NumPy float64, one image at a time.

Slow and plain on purpose: every function follows its pseudo-code line by line, so that a reader
can check it against the paper, and a test can check the package against it.
"""

import math

import numpy as np
from scipy.stats import beta as beta_distribution
from scipy.stats import binomtest, norm


def softmax(u, inverse_temperature):
    """z^c = e^{βu^c} / Σ_c' e^{βu^c'}.                                     [Zhai+20, Sec. 3]"""
    scaled = inverse_temperature * np.asarray(u, dtype=np.float64)
    powers = np.exp(scaled - scaled.max())
    return powers / powers.sum()


def macer_objective(logits, labels, *, sigma, lam, gamma, beta):
    """Lines 5 to 9 of Algorithm 1; the cross-entropy has inverse temperature 1 [Zhai+20, Sec. 5.3].

    logits: (images, k, classes).
    """
    n, k, classes = logits.shape
    classification, robustness = 0.0, 0.0
    for i in range(n):
        y = labels[i]
        z_hat = sum(softmax(logits[i, j], 1.0) for j in range(k)) / k
        classification += -math.log(z_hat[y])

        z_hat = sum(softmax(logits[i, j], beta) for j in range(k)) / k
        if y == np.argmax(z_hat):
            others = [c for c in range(classes) if c != y]
            y_hat = others[int(np.argmax(z_hat[others]))]
            xi = norm.ppf(z_hat[y]) - norm.ppf(z_hat[y_hat])
            robustness += max(gamma - xi, 0.0)
    return classification / n + lam * sigma / (2 * n) * robustness


def certify(counts0, counts, *, sigma, n, alpha):
    """CERTIFY, its counts given: (prediction or −1, radius).                      [Cohen+19]"""
    c_a = int(np.argmax(counts0))
    n_a = int(counts[c_a])
    p_a = 0.0 if n_a == 0 else beta_distribution.ppf(alpha, n_a, n - n_a + 1)
    if p_a > 0.5:
        return c_a, sigma * norm.ppf(p_a)
    return -1, 0.0


def predict(counts, *, alpha):
    """PREDICT, its counts given: prediction or −1.                                 [Cohen+19]"""
    c_a, c_b = np.argsort(-np.asarray(counts), kind="stable")[:2]
    n_a, n_b = int(counts[c_a]), int(counts[c_b])
    if n_a + n_b and binomtest(n_a, n_a + n_b, 0.5).pvalue <= alpha:
        return int(c_a)
    return -1


def sample_moments(samples):
    """SampleUnderNoise, its samples given: A[1, :] and A[2, :].            [Zhai+20, Alg. 2]"""
    A = np.zeros((2, samples.shape[1]))
    for z in samples:
        A[0] += z
        A[1] += z**2
    return A


def certify_hoeffding(z0, z, *, sigma, alpha):
    """CertifyHoeffding, its samples (num, classes) given.                  [Zhai+20, Alg. 2]"""
    n = len(z)
    c_a = int(np.argmax(sample_moments(z0)[0] / len(z0)))
    z_a = sample_moments(z)[0, c_a] / n - math.sqrt(-math.log(alpha) / (2 * n))
    return (c_a, sigma * norm.ppf(z_a)) if z_a > 0.5 else (-1, 0.0)


def certify_bernstein(z0, z, *, sigma, alpha):
    """CertifyBernstein, its samples (num, classes) given.                  [Zhai+20, Alg. 2]"""
    n = len(z)
    c_a = int(np.argmax(sample_moments(z0)[0] / len(z0)))
    A = sample_moments(z)
    variance = (A[1, c_a] - A[0, c_a] ** 2 / n) / (n - 1)
    z_a = (
        A[0, c_a] / n
        - math.sqrt(2 * variance * math.log(2 / alpha) / n)
        - 7 * math.log(2 / alpha) / (3 * (n - 1))
    )
    return (c_a, sigma * norm.ppf(z_a)) if z_a > 0.5 else (-1, 0.0)
