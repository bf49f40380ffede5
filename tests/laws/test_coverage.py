"""Certificates against the truth: classifiers of which everything is known once smoothed.

A certificate says p̲ ≤ p_A, and from it that a label holds within a radius. Either may be false of
at most a share α of many certificates, each drawn with noise of its own; and where the bound is as
tight as Clopper and Pearson's can be, p̲ > p_A must also be as frequent as it is due.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import ndtr as Phi
from scipy.stats import binom, ncx2
from torch import Tensor, nn
from torch.nn.functional import one_hot

from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.conclusions import conclude
from macer.certification.largest_radius import certify, predict
from macer.smoothing.confidence import clopper_pearson_lower, radius_lower
from macer.smoothing.exact_noise import BITS, levels
from macer.smoothing.tally import Tally

pytestmark = pytest.mark.slow

SIGMA, N0, N, IMAGES = 0.5, 20, 200, 2000
LEVELS = (0.05, 0.001)
CHANCE = 1e-5  # that a right bound fails a check

# For exact noise every edge lies midway between two of the 256 levels, along one pixel: there
# round(255z) is on the same side as 255z, and the truth is that of ordinary noise.
GREY = torch.full((1, 2, 2), 128, dtype=torch.uint8)
ONE_PIXEL, DIAGONAL = (1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.5, 0.5)


class Rule(nn.Module):
    """A classifier by a function of the pixels: (rows, pixels) -> classes."""

    def __init__(self, rule: Callable[[Tensor], Tensor], classes: int):
        super().__init__()
        self.rule, self.classes = rule, classes

    def forward(self, x):
        return one_hot(self.rule(x.flatten(1)).long(), self.classes).float()


@dataclass(frozen=True, eq=False)
class Bed:
    """A classifier and an image, with the truth about the smoothed classifier there."""

    model: nn.Module
    image: Tensor  # (channels, height, width)
    p: np.ndarray  # of each class under noise
    radius: float  # distance to where the smoothed classifier changes its label; 0 at a tie
    sigma: float = SIGMA

    @property
    def label(self):
        return int(self.p.argmax())


def along(w, rule, classes, p_at, image):
    """A classifier of w·(x − image), ‖w‖ = 1, by p_at: displacement along w -> probabilities.

    The smoothed classifier changes along w alone, so that its nearest change is there.
    """
    weights = torch.tensor(w)
    origin = (image.double() / 255 if image.dtype == torch.uint8 else image).double().flatten()

    def of_pixels(x):
        return rule(((x.double() - origin) * weights).sum(dim=1))

    return Bed(Rule(of_pixels, classes), image, p_at(0.0), distance_to_change(p_at))


def distance_to_change(p_at, least=-4.0):
    """The least |s| where another class than at s = 0 comes first: a fine grid, then bisection."""

    def lead(s):
        p = p_at(s)
        return p[label] - np.delete(p, label, axis=0).max(axis=0)

    label, distances = int(p_at(0.0).argmax()), []
    for end in (least, 4.0):
        grid = np.linspace(0.0, end, 4001)
        behind = np.flatnonzero(lead(grid) < 0)
        if len(behind):
            distances.append(abs(brentq(lead, *grid[[behind[0] - 1, behind[0]]], xtol=1e-12)))
    return min(distances, default=math.inf)


def half_space(distance, w=DIAGONAL, image=GREY / 255):
    """Class 1 on the image's side of a plane."""

    def p_at(s):
        return np.stack([Phi(-(distance + s) / SIGMA), Phi((distance + s) / SIGMA)])

    return along(w, lambda s: s > -distance, 2, p_at, image)


def slab(centre, half, w=DIAGONAL, image=GREY / 255):
    """Class 1 within a distance of a plane."""

    def p_at(s):
        inside = Phi((centre + half - s) / SIGMA) - Phi((centre - half - s) / SIGMA)
        return np.stack([1 - inside, inside])

    return along(w, lambda s: (s - centre).abs() < half, 2, p_at, image)


def interval(low, high, image=GREY[:, :1, :1] / 255):
    """In one dimension: class 0 below an interval, 1 in it, 2 above it."""

    def p_at(s):
        below, above = Phi((low - s) / SIGMA), Phi((s - high) / SIGMA)
        return np.stack([below, 1 - below - above, above])

    return along((1.0,), lambda s: (s > low).long() + (s > high), 3, p_at, image)


def ball(distance, rho):
    """Class 1 in a ball of three dimensions; ‖x + η − c‖²/σ² is noncentral χ²."""
    image = torch.full((1, 1, 3), 0.5)
    centre = image.double().flatten() - distance / math.sqrt(3)

    def p_at(s):
        inside = ncx2.cdf((rho / SIGMA) ** 2, 3, ((distance + s) / SIGMA) ** 2)
        return np.stack([1 - inside, inside])

    model = Rule(lambda x: (x.double() - centre).norm(dim=1) < rho, 2)
    return Bed(model, image, p_at(0.0), distance_to_change(p_at, least=-distance))


def tie_of_two():
    """A plane through the image."""
    return half_space(0.0)


def tie_of_four():
    """Two planes through the image."""
    image = torch.full((1, 1, 2), 0.5)
    rule = Rule(lambda x: 2 * (x[:, 0] > 0.5).long() + (x[:, 1] > 0.5), 4)
    return Bed(rule, image, np.full(4, 0.25), 0.0)


def tie_of_levels():
    """The first pixel that the noise moves decides by its direction; p₀ = p₂ to the last bit."""
    order = torch.tensor([8.0, 4.0, 2.0, 1.0])

    def rule(x):
        return ((x - GREY.flatten() / 255).sign() @ order).sign() + 1

    unmoved = float(level_probabilities(SIGMA)[0]) ** 4
    p = np.array([(1 - unmoved) / 2, unmoved, (1 - unmoved) / 2])
    return Bed(Rule(rule, 3), GREY, p, 0.0)


def level_probabilities(sigma):
    """P(D = 0), P(D = 1), …, as they are drawn; D and −D are alike to 2⁻⁶²."""
    table = levels(sigma)
    return np.diff(table.thresholds / 2.0**BITS)[-table.lowest - 1 :]


def levels_ball(rho, sigma=0.1):
    """Class 1 where two pixels move by D₁² + D₂² < ρ²; the radius in closed form is not known."""
    half = level_probabilities(sigma)
    noise = np.arange(-len(half) + 1, len(half))
    p = half[abs(noise)]
    inside = float((p[:, None] * p * (noise[:, None] ** 2 + noise**2 < rho**2)).sum())

    def rule(x):
        return ((x * 255).round() - 128).square().sum(dim=1) < rho**2

    return Bed(Rule(rule, 2), GREY[:, :1], np.array([1 - inside, inside]), math.inf, sigma)


def levels_half_space(above, sigma=0.1):
    """Class 1 where D₁ + D₂ > −above; the radius in closed form is not known."""
    half = level_probabilities(sigma)
    p = np.concatenate([half[:0:-1], half])
    total = np.convolve(p, p)
    share = float(total[len(total) // 2 - above + 1 :].sum())

    def rule(x):
        return ((x * 255).round() - 128).sum(dim=1) > -above

    return Bed(Rule(rule, 2), GREY[:, :1], np.array([1 - share, share]), math.inf, sigma)


BEDS = {
    "half-space": lambda: half_space(0.62),
    "half-space, near": lambda: half_space(0.3),
    "slab, inside": lambda: slab(0.1, 0.6),
    "slab, outside": lambda: slab(0.9, 0.6),
    "slab, thin": lambda: slab(0.0, 0.2),
    "interval, inside": lambda: interval(-0.35, 0.9),
    "interval, above": lambda: interval(-0.8, -0.3),
    "interval, no majority": lambda: interval(-0.1, 0.25),
    "ball, inside": lambda: ball(0.3, 1.1),
    "ball, outside": lambda: ball(1.3, 1.1),
    "exact half-space": lambda: half_space(107.5 / 255, ONE_PIXEL, GREY),
    "exact slab": lambda: slab(10 / 255, 150.5 / 255, ONE_PIXEL, GREY),
    "exact interval": lambda: interval(-99.5 / 255, 180.5 / 255, GREY[:, :1, :1]),
    "ball of levels": lambda: levels_ball(45.3),
    "half-space of levels": lambda: levels_half_space(30),
}
TIES = {"tie of two": tie_of_two, "tie of four": tie_of_four, "tie of levels": tie_of_levels}


def certified(bed: Bed, images: int = IMAGES, n: int = N, alpha: float = 0.05):
    """Certificates of one image many times over, each with noise of its own."""
    copies = bed.image.expand(images, -1, -1, -1)
    return certify(bed.model, copies, sigma=bed.sigma, n0=N0, n=n, alpha=alpha)


@cache
def certificates_of(name: str) -> tuple[Bed, list[Certificate]]:
    bed = (BEDS | TIES)[name]()
    return bed, certified(bed)


def with_bounds(bed: Bed, certificates: list[Certificate], p_a) -> list[Certificate]:
    """The same certificates, with other bounds of p_A."""
    rows = zip(certificates, p_a.tolist(), radius_lower(p_a, bed.sigma).tolist(), strict=True)
    return [
        replace(c, label=c.selected if p > 0.5 else ABSTAIN, p_a=p, radius=radius)
        for c, p, radius in rows
    ]


def at_level(bed: Bed, certificates: list[Certificate], alpha: float, n: int = N):
    """What certify concludes from the same counts at another α."""
    counts = [c.estimation[c.selected] for c in certificates]
    return with_bounds(bed, certificates, clopper_pearson_lower(counts, n, alpha))


def by_runner_up(bed: Bed, certificates: list[Certificate], alpha: float, n: int = N):
    """The certificates that the runner-up bound gives from the same counts."""
    selection, estimation = (
        torch.tensor([getattr(c, name) for c in certificates])
        for name in ("selection", "estimation")
    )
    tallies = (Tally(votes, votes, votes) for votes in (selection, estimation))
    return conclude(*tallies, sigma=bed.sigma, n=n, alpha=alpha, bound="runner-up")


def false_bounds(bed, certificates) -> int:
    """Certificates of which one of both bounds is false."""
    return sum(
        bed.p[c.selected] < c.p_a or np.delete(bed.p, c.selected).max() > c.p_b
        for c in certificates
    )


def due(p: float, alpha: float, n: int = N) -> float:
    """How often Clopper and Pearson's bound exceeds p: P(count ≥ k) for the least k allowed."""
    tails = binom.sf(np.arange(-1, n), n, p)
    return float(tails[tails < alpha].max(initial=0.0))


def check_bounds(bed, certificates, alpha, n=N) -> None:
    """p̲ > p_A is as frequent as it is due, which is at most α."""
    selected = np.array([c.selected for c in certificates])
    false = sum(bed.p[selected] < [c.p_a for c in certificates])
    rate = np.array([due(p, alpha, n) for p in bed.p])[selected].mean()
    check_rate(false, len(certificates), rate)
    assert false >= binom.ppf(CHANCE, len(certificates), rate), "the bound is too low"


def check_rate(false: int, images: int, rate: float) -> None:
    assert false <= binom.ppf(1 - CHANCE, images, rate), "too many are false"


def check_votes(bed, certificates) -> None:
    """The votes have the probabilities that are taken for the truth, to the third digit."""
    votes = np.sum([c.estimation for c in certificates], axis=0)
    total = votes.sum()
    assert total == len(certificates) * N
    assert (abs(votes - total * bed.p) <= 5 * np.sqrt(total * bed.p * (1 - bed.p)) + 1).all()


def false_labels(bed, certificates) -> int:
    """Certificates whose label does not hold everywhere within their radius."""
    return sum(
        c.label != ABSTAIN and (c.label != bed.label or c.radius > bed.radius) for c in certificates
    )


# law


@pytest.mark.parametrize("name", BEDS)
def test_a_certificate_is_false_at_most_at_rate_alpha_and_its_bound_as_often_as_due(name):
    bed, certificates = certificates_of(name)
    check_votes(bed, certificates)
    for alpha in LEVELS:
        at_alpha = at_level(bed, certificates, alpha)
        check_bounds(bed, at_alpha, alpha)
        check_rate(false_labels(bed, at_alpha), IMAGES, alpha)
    if bed.p.max() > 0.6:  # and not because it abstains
        assert sum(c.label == bed.label for c in certificates) > IMAGES / 2


@pytest.mark.parametrize("name", BEDS | TIES)
def test_a_certificate_by_the_runner_up_bound_is_false_at_most_at_rate_alpha(name):
    bed, certificates = certificates_of(name)
    for alpha in LEVELS:
        at_alpha = by_runner_up(bed, certificates, alpha)
        check_rate(false_bounds(bed, at_alpha), IMAGES, alpha)
        check_rate(false_labels(bed, at_alpha), IMAGES, alpha)
        if name in TIES:
            check_rate(sum(c.label != ABSTAIN for c in at_alpha), IMAGES, alpha)


def test_the_runner_up_bound_certifies_a_class_that_has_no_majority():
    bed, certificates = certificates_of("interval, no majority")
    ours = by_runner_up(bed, certificates, 0.05)
    assert bed.p.max() < 0.5
    assert sum(c.label == bed.label for c in certificates) < 0.05 * IMAGES
    assert sum(c.label == bed.label for c in ours) > 0.05 * IMAGES


def test_certify_concludes_by_the_runner_up_bound_what_is_checked_here():
    bed, certificates = certificates_of("interval, inside")
    copies = bed.image.expand(200, -1, -1, -1)
    ours = certify(bed.model, copies, sigma=bed.sigma, n0=N0, n=N, alpha=0.05, bound="runner-up")
    assert [replace(c, exact=True) for c in ours] == by_runner_up(bed, certificates[:200], 0.05)


@pytest.mark.parametrize("name", ["half-space", "tie of two"])
def test_certify_concludes_at_each_level_what_is_checked_here(name):
    bed, certificates = certificates_of(name)
    for alpha in LEVELS:
        assert certified(bed, 200, alpha=alpha) == at_level(bed, certificates[:200], alpha)


def test_a_half_spaces_radius_is_false_exactly_where_its_bound_is():
    bed, certificates = certificates_of("half-space")
    assert bed.radius == pytest.approx(0.62, abs=1e-9)
    false = [c.radius > bed.radius for c in certificates]
    assert false == [c.p_a > bed.p[1] for c in certificates] and any(false)


@pytest.mark.slow
def test_twenty_thousand_certificates_at_one_in_a_thousand_show_the_rate():
    bed, n = half_space(0.34), 100
    certificates = certified(bed, images=20_000, n=n)
    check_bounds(bed, at_level(bed, certificates, 0.001, n), 0.001, n)
    with pytest.raises(AssertionError, match="too many are false"):
        check_bounds(bed, at_level(bed, certificates, 0.003, n), 0.001, n)


@pytest.mark.parametrize("name", TIES)
def test_at_a_tie_a_label_is_certified_or_predicted_at_most_at_rate_alpha(name):
    bed, certificates = certificates_of(name)
    check_votes(bed, certificates)
    for alpha in LEVELS:
        at_alpha = at_level(bed, certificates, alpha)
        check_bounds(bed, at_alpha, alpha)
        check_rate(sum(c.label != ABSTAIN for c in at_alpha), IMAGES, alpha)
        copies = bed.image.expand(IMAGES, -1, -1, -1)
        predicted = predict(bed.model, copies, sigma=bed.sigma, n=100, alpha=alpha)
        check_rate(IMAGES - predicted.count(ABSTAIN), IMAGES, alpha)


# refusal: the checks above notice bounds that are wrong


@pytest.mark.parametrize(
    ("alpha", "message"),
    [(0.15, "too many are false"), (0.025, "the bound is too low")],
)
def test_a_bound_of_another_level_is_noticed(alpha, message):
    bed, certificates = certificates_of("half-space")
    with pytest.raises(AssertionError, match=message):
        check_bounds(bed, at_level(bed, certificates, alpha), 0.05)


@pytest.mark.parametrize("alpha", LEVELS)
def test_an_estimate_in_place_of_the_bound_is_noticed(alpha):
    bed, certificates = certificates_of("half-space")
    shares = np.array([c.estimation[c.selected] / N for c in certificates])
    tampered = with_bounds(bed, certificates, shares)
    with pytest.raises(AssertionError, match="too many are false"):
        check_bounds(bed, tampered, alpha)
    with pytest.raises(AssertionError, match="too many are false"):
        check_rate(false_labels(bed, tampered), IMAGES, alpha)


def test_an_estimate_in_place_of_the_runner_ups_bound_is_noticed():
    bed, certificates = certificates_of("interval, no majority")
    ours = by_runner_up(bed, certificates, 0.05)
    tampered = [replace(c, p_b=np.sort(c.estimation)[-2] / N) for c in ours]
    with pytest.raises(AssertionError, match="too many are false"):
        check_rate(false_bounds(bed, tampered), IMAGES, 0.05)


def test_selecting_a_class_on_the_samples_that_bound_it_is_noticed():
    bed, certificates = certificates_of("tie of four")
    check_bounds(bed, certificates, 0.05)
    reused = [replace(c, selected=int(np.argmax(c.estimation))) for c in certificates]
    with pytest.raises(AssertionError, match="too many are false"):
        check_bounds(bed, at_level(bed, reused, 0.05), 0.05)
