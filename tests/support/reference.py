"""The papers' algorithms, transcribed literally in NumPy float64, one image at a time.

Slow and plain on purpose: every function follows its pseudo-code line by line, so that a reader
can check it against the paper, and a test can check the package against it.
"""

import math

import mpmath
import numpy as np
from scipy.stats import beta as beta_distribution
from scipy.stats import binom, binomtest, norm


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


def certify_runner_up(counts0, counts, *, sigma, n, alpha, w=0.1):
    """CERTIFY with all classes' bounds at once, its counts given: (prediction or −1, radius).

    p̲_A at level (1 − w)α, and p̄_c of each other class at wα/(K − 1)      [Jia+20, SimuEM]
    R = σ/2 · (Φ⁻¹(p̲_A) − Φ⁻¹(p̄_B)), p̄_B = min(max_c p̄_c, 1 − p̲_A)      [Cohen+19, Thm. 1]
    """
    c_a, classes = int(np.argmax(counts0)), len(counts)
    n_a, nobody = int(counts[c_a]), n - int(sum(counts))
    p_a = 0.0 if n_a == 0 else beta_distribution.ppf((1 - w) * alpha, n_a, n - n_a + 1)
    uppers = []
    for c in range(classes):
        if c != c_a:
            n_c = int(counts[c]) + nobody
            level = w * alpha / (classes - 1)
            uppers.append(1.0 if n_c == n else beta_distribution.isf(level, n_c + 1, n - n_c))
    p_b = min(max(uppers), 1 - p_a)
    if p_a > p_b:
        return c_a, sigma / 2 * (norm.ppf(p_a) - norm.ppf(p_b))
    return -1, 0.0


def anytime_wealth(count, n, p0):
    """W(p₀) = Σⱼ wⱼ (pⱼ/p₀)ᵏ ((1 − pⱼ)/(1 − p₀))ⁿ⁻ᵏ, to the digits that mpmath works with.

    pⱼ = sin² min(φ₀ + dⱼ, π/2), φ₀ = arcsin √p₀;  dⱼ = 2⁻ʲ, j = 1…12, and ∞
    """
    p0, total = mpmath.mpf(p0), mpmath.mpf(0)
    distances = [mpmath.mpf(2) ** -j for j in range(1, 13)] + [mpmath.inf]
    for weight, distance in zip((1, 1, 2, 3, 4, 4, 3, 2, 1, 1, 1, 1, 8), distances, strict=True):
        angle = min(mpmath.asin(mpmath.sqrt(p0)) + distance, mpmath.pi / 2)
        own = (mpmath.sin(angle) ** 2 / p0) ** count
        cosine = 0 if angle == mpmath.pi / 2 else mpmath.cos(angle)  # else rounded
        other = (cosine**2 / (1 - p0)) ** (n - count)
        total += mpmath.mpf(weight) / 32 * own * other
    return total


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


def gaussian_objective(logits, labels):
    """Cross-entropy of each noisy copy, averaged.                                  [Cohen+19]

    logits: (images, k, classes).
    """
    n, k, _ = logits.shape
    total = 0.0
    for i in range(n):
        for j in range(k):
            total += -math.log(softmax(logits[i, j], 1.0)[labels[i]])
    return total / (n * k)


def cross_entropy(p, q):
    """H(p, q) = −Σ_c p_c log q_c."""
    return -sum(p_c * math.log(q_c) for p_c, q_c in zip(p, q, strict=True))


def stability_objective(clean, logits, labels, *, lam):
    """CE(u(x), y) + λ·CE(softmax u(x), u(x + η)), averaged over the noise.            [Li+19]

    clean: (images, classes); logits: (images, k, classes).
    """
    n, k, _ = logits.shape
    total = 0.0
    for i in range(n):
        z = softmax(clean[i], 1.0)
        total += -math.log(z[labels[i]])
        for j in range(k):
            total += lam / k * cross_entropy(z, softmax(logits[i, j], 1.0))
    return total / n


def denoising_objective(logits, labels, errors, *, lam, mse):
    """λ·CE(u(D(x + η)), f(x)) + m·MSE(D(x + η), x), averaged over the noise.       [Salman+20]

    logits: (images, k, classes); labels: f(x), (images,); errors: D(x + η) − x, (images, k, …).
    """
    n, k, _ = logits.shape
    total = 0.0
    for i in range(n):
        for j in range(k):
            total += lam / k * -math.log(softmax(logits[i, j], 1.0)[labels[i]])
            pixels = [float(error) for error in errors[i, j].reshape(-1)]
            total += mse / k * sum(error**2 for error in pixels) / len(pixels)
    return total / n


def consistency_objective(logits, labels, *, lam, eta):
    """mean_j CE(u_j, y) + λ·mean_j KL(z̄ ‖ z_j) + η·H(z̄).                          [Jeong+20]"""
    n, m, _ = logits.shape
    total = 0.0
    for i in range(n):
        z = [softmax(logits[i, j], 1.0) for j in range(m)]
        z_bar = sum(z) / m
        for z_j in z:
            total += -math.log(z_j[labels[i]]) / m
            total += lam / m * (cross_entropy(z_bar, z_j) - cross_entropy(z_bar, z_bar))
        total += eta * cross_entropy(z_bar, z_bar)
    return total / n


def divergence(p, q):
    """KL(p ‖ q) = Σ_c p_c log(p_c / q_c), with 0 log 0 = 0."""
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def smoothmix_loss(u, v, y, w, *, eta):
    """CE + η·1[correct]·KL(target ‖ z(mix)), of one image.                         [Jeong+21]

    u, v: (m, classes), the logits of the noisy image and of the noisy mixed image.
    """
    m, classes = u.shape
    z_bar = sum(softmax(u[j], 1.0) for j in range(m)) / m
    target = (1 - w) * z_bar + w / classes
    loss = sum(-math.log(softmax(u[j], 1.0)[y]) for j in range(m)) / m
    if np.argmax(z_bar) == y:
        loss += eta * sum(divergence(target, softmax(v[j], 1.0)) for j in range(m)) / m
    return loss


def catrs_loss(u, v, y, y_bar, accepted, *, lam):
    """The M smallest losses over m, and λ·1[M = m]·max_j KL(ȳ ‖ z*_j), of one image.  [Jeong+23]

    u, v: (m, classes), the logits of the noisy image and of it under attacked noise.
    """
    m = len(u)
    losses = sorted(-math.log(softmax(u[j], 1.0)[y]) for j in range(m))
    loss = sum(losses[:accepted]) / m
    if accepted == m:
        loss += lam * max(divergence(y_bar, softmax(v[j], 1.0)) for j in range(m))
    return loss


def distillation(u, v, *, temperature, targets):
    """T²/k Σⱼ KL(t ‖ z_j) of one image, with the teacher's t_j or their mean as t. [Hinton+15]

    u, v: (k, classes), the logits of the network and of the teacher.
    """
    k = len(u)
    t = [softmax(v[j] / temperature, 1.0) for j in range(k)]
    if targets == "mean":
        t = [sum(t) / k] * k
    z = [softmax(u[j] / temperature, 1.0) for j in range(k)]
    return temperature**2 * sum(divergence(t[j], z[j]) for j in range(k)) / k


def sphere_attack(gradient, predict, x, y, eta, *, step_size, steps):
    """The noise attack of one copy.                                                  [Sun+24]

    gradient: of −log z_y at a point; predict: the class at a point.
    """
    length = np.linalg.norm(eta)
    for _ in range(steps):
        if predict(x + eta) != y:
            break
        g = gradient(x + eta)
        eta = eta + step_size * g / np.linalg.norm(g)
        eta = length * eta / np.linalg.norm(eta)
    return eta


def standardised_attack(gradient, x, eta, *, epsilon, steps):
    """The noise attack of one copy; gradient: of KL(ȳ ‖ z) at a point.            [Jeong+23]"""
    eta_0 = eta
    for _ in range(steps):
        g = gradient(x + eta)
        eta = eta + 2 * epsilon / steps * g / np.linalg.norm(g)
        delta = eta - eta_0
        eta = eta_0 + delta * min(1.0, epsilon / np.linalg.norm(delta))
        eta = eta_0.mean() + (eta - eta.mean()) / eta.std() * eta_0.std()
    return eta


def sun_weight(p, n):
    """Φ⁻¹ of the one-sided Clopper–Pearson bound at α = 0.1 of clip(p, ¾, 1).     [Sun+24, code]"""
    count = int(min(max(p, 0.75), 1.0) * n)
    return norm.ppf(beta_distribution.ppf(0.1, count, n - count + 1))


def largest_radius(n, *, sigma, alpha):
    """σΦ⁻¹(p̲_A) where all n samples vote for one class: p̲_Aⁿ = α.               [Cohen+19]"""
    return sigma * norm.ppf(alpha ** (1 / n))


def sequential_samples(p_a, *, looks, verdict):
    """(E samples, P(robust)) of a sequential test, by the whole distribution of the votes.

    looks: sample sizes; verdict(votes, n): "open", "robust" or "given up".
    """
    still_open, before, expected, robust = {0: 1.0}, 0, 0.0, 0.0
    for n in looks:
        step = n - before
        expected += step * sum(still_open.values())
        chances = binom.pmf(range(step + 1), step, p_a)
        after = {}
        for votes, chance in still_open.items():
            for more in range(step + 1):
                after[votes + more] = after.get(votes + more, 0.0) + chance * chances[more]
        robust += sum(chance for k, chance in after.items() if verdict(k, n) == "robust")
        still_open = {k: chance for k, chance in after.items() if verdict(k, n) == "open"}
        before = n
    return expected, robust
