"""The gate: its bounds, how often it passes by chance, and what it counts."""

from dataclasses import replace

import numpy as np
import pytest
from examples import log_of, random_log, with_classes
from scipy.stats import beta, binom

from macer.reporting.gate import (
    Build,
    accuracy,
    baseline_notes,
    certified_at,
    class_bounds,
    difference_lower,
    not_worse,
    notes,
    robust_lower,
    worst_class,
)
from macer.reporting.logs import CertificateLog
from macer.system.errors import Mistake

LEVEL = 0.05
BUILDS = 10_000
MOST = LEVEL * BUILDS  # false passes


def certified_log(certified: int, images: int, *, name: str = "some") -> CertificateLog:
    """A log whose first images are certified at radius 1, the others at 0.1."""
    radius = np.where(np.arange(images) < certified, 1.0, 0.1)
    return log_of([0] * images, radius.tolist(), name=name)


def build(log: CertificateLog, radius: float = 0.5) -> Build:
    return Build(log, radius, alpha=0.001, level=LEVEL)


# reference


@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_the_bound_of_robust_accuracy_is_scipys_quantile_less_alpha(
    alpha: float, level: float
) -> None:
    certified = np.arange(1, 201)
    q = beta.ppf(level, certified, 200 - certified + 1)
    expected = np.maximum((q - alpha) / (1 - alpha), 0)
    lower = robust_lower(certified, 200, alpha, level)
    np.testing.assert_allclose(lower, expected, rtol=1e-11, atol=1e-15)
    assert robust_lower(0, 200, alpha, level) == 0.0


@pytest.mark.parametrize(("gained", "lost"), [(5, 7), (0, 3), (1, 1), (40, 90), (500, 500)])
def test_the_bound_of_a_difference_is_that_of_scipys_quantiles(gained: int, lost: int) -> None:
    theta = beta.ppf(0.9 * LEVEL, gained, lost + 1) if gained else 0.0
    p_lost = beta.ppf(1 - 0.1 * LEVEL, lost + 1, 2000 - lost)
    expected = -p_lost * (1 - theta / (1 - theta))
    assert difference_lower(gained, lost, 2000, LEVEL) == pytest.approx(expected, rel=1e-11)


# law


@pytest.mark.parametrize("images", [50, 500, 2000])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
@pytest.mark.parametrize("required", [0.6, 0.95])
def test_a_build_at_the_boundary_passes_no_more_often_than_it_may(
    images: int, alpha: float, required: float
) -> None:
    """Robust images are all certified, others falsely with the probability α: the worst case."""
    random = np.random.default_rng(0)
    q = required + (1 - required) * alpha
    counts = np.arange(images + 1)
    passing = robust_lower(counts, images, alpha, LEVEL) >= required
    assert binom.pmf(counts[passing], images, q).sum() <= LEVEL
    robust = random.binomial(images, required, BUILDS)
    certified = robust + random.binomial(images - robust, alpha)
    false = passing[certified].sum()
    assert false <= MOST
    if images == 2000:
        assert false >= 0.6 * MOST, "it is not needlessly strict"


@pytest.mark.parametrize("allowed", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("differing", [0.05, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("images", [100, 2000])
def test_a_build_worse_by_what_is_allowed_passes_no_more_often_than_it_may(
    allowed: float, differing: float, images: int
) -> None:
    random = np.random.default_rng(0)
    gains, losses = (differing - allowed) / 2, (differing + allowed) / 2
    counts = random.multinomial(images, [gains, losses, 1 - differing], BUILDS)
    lower = difference_lower(counts[:, 0], counts[:, 1], images, LEVEL)
    false = (lower >= -allowed).sum()
    assert false <= MOST
    if images == 2000 and differing >= 0.6:
        assert false >= 0.3 * MOST, "it is not needlessly strict"


@pytest.mark.parametrize("allowed", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("differing", [0.05, 0.2, 0.6, 1.0])
def test_the_exact_probability_that_a_worse_build_passes_is_within_the_level(
    allowed: float, differing: float
) -> None:
    images = 100
    gained, lost = np.meshgrid(np.arange(images + 1), np.arange(images + 1), indexing="ij")
    both = gained + lost
    possible = both <= images
    share = (differing - allowed) / 2 / differing
    chance = binom.pmf(both, images, differing) * binom.pmf(gained, both, share)
    passing = difference_lower(gained, np.minimum(lost, images - gained), images, LEVEL) >= -allowed
    assert chance[possible].sum() == pytest.approx(1)
    assert chance[possible & passing].sum() <= LEVEL


@pytest.mark.parametrize("others", [1.0, 0.3])
def test_a_build_whose_worst_class_is_at_the_boundary_passes_no_more_often_than_it_may(
    others: float,
) -> None:
    random = np.random.default_rng(0)
    required, alpha, images = 0.3, 0.01, 200
    robust = np.array([required, *[others] * 9])
    certified = random.binomial(images, robust + (1 - robust) * alpha, (BUILDS, 10))
    lower = robust_lower(np.arange(images + 1), images, alpha, LEVEL)[certified].min(axis=1)
    false = (lower >= required).sum()
    assert false <= MOST
    if others == 1.0:
        assert false >= 0.5 * MOST, "the level is not shared among classes"


def test_a_gate_of_several_requirements_passes_falsely_no_more_often_than_one() -> None:
    """Accuracy is at its boundary; the other requirements are surely met."""
    random = np.random.default_rng(1)
    certified = random.binomial(1000, 0.6, BUILDS)
    together = (robust_lower(certified, 1000, 1e-9, LEVEL) >= 0.6) & (
        difference_lower(certified, 0, 1000, LEVEL) >= 0
    )
    chance = 3 * (BUILDS * LEVEL * (1 - LEVEL)) ** 0.5
    assert 0.6 * MOST <= together.sum() <= MOST + chance


def test_the_requirements_are_decided_by_these_bounds() -> None:
    log = certified_log(70, 100)
    told = accuracy(build(log), 0.6)
    assert told.lower == robust_lower(70, 100, 0.001, LEVEL)
    assert (told.passed, told.estimate, told.images, told.required) == (True, 0.7, 100, 0.6)
    other = certified_log(75, 100, name="other")
    told = not_worse(build(log), other, 0.01)
    assert told.lower == difference_lower(0, 5, 100, LEVEL)
    assert (told.passed, told.estimate, told.images, told.required) == (False, -0.05, 100, -0.01)


def test_a_bound_equal_to_what_is_required_passes_and_one_below_it_does_not() -> None:
    log, other = certified_log(70, 100), certified_log(72, 100)
    lower = float(robust_lower(70, 100, 0.001, LEVEL))
    for required, passed in ((lower, True), (np.nextafter(lower, 1), False)):
        assert accuracy(build(log), required).passed == passed
        assert worst_class(build(log), class_bounds(build(log)), required).passed == passed
    lower = float(difference_lower(0, 2, 100, LEVEL))
    for allowed, passed in ((-lower, True), (np.nextafter(-lower, 0), False)):
        assert not_worse(build(log), other, allowed).passed == passed


def test_the_images_that_are_needed_are_the_fewest_that_pass() -> None:
    line = accuracy(build(certified_log(5, 100)), 0.6).line
    needed = int(line.removesuffix(" are needed").split()[-1])
    for certified, passed in ((needed - 1, False), (needed, True)):
        assert accuracy(build(certified_log(certified, 100)), 0.6).passed == passed
    line = accuracy(build(certified_log(3, 3)), 0.6).line
    assert line.endswith("and all of them would be too few: certify more images")


def test_only_right_labels_at_the_radius_or_beyond_count() -> None:
    log = log_of([0, 0, 0, 1, -1, -1], [0.5, 0.499999, 2.0, 2.0, 0.0, 0.0])
    assert certified_at(log, 0.5).tolist() == [True, False, True, False, False, False]
    assert certified_at(log, 0.0).tolist() == [True, True, True, False, False, False]


def test_the_comparison_is_of_the_common_images_one_by_one() -> None:
    """The builds certify equally many, and differ in every image that one of them certifies."""
    first, second = log_of([0] * 10 + [1] * 10, [1.0] * 20), log_of([1] * 10 + [0] * 10, [1.0] * 20)
    told = not_worse(build(first), second, 0.1)
    assert told.estimate == 0 and told.lower == difference_lower(10, 10, 20, LEVEL)
    same = not_worse(build(first), first, 0.1)
    assert same.lower == difference_lower(0, 0, 20, LEVEL) > told.lower
    later = log_of([0] * 10, [1.0] * 10, start=15)
    told = not_worse(build(later), second, 0.1)
    assert (told.images, told.estimate) == (5, 0.0)


def test_a_difference_is_bounded_better_from_pairs_than_from_two_accuracies() -> None:
    paired = difference_lower(30, 30, 2000, LEVEL)
    separate = robust_lower(1200, 2000, 0, LEVEL / 2) - (1 - robust_lower(800, 2000, 0, LEVEL / 2))
    assert paired > separate / 2


def test_more_gained_or_fewer_lost_images_never_lower_the_bound() -> None:
    gained, lost = np.meshgrid(np.arange(40), np.arange(40), indexing="ij")
    lower = difference_lower(gained, lost, 100, LEVEL)
    assert (np.diff(lower, axis=0) >= 0).all() and (np.diff(lower, axis=1) <= 0).all()
    assert (lower <= 0).all() and (lower >= -1).all()


def test_a_class_without_images_has_the_bound_0_where_the_number_of_classes_is_known() -> None:
    log = with_classes(certified_log(40, 40), [0, 2] * 20, [0, 2] * 20)
    assert [bound.label for bound in class_bounds(build(log))] == [0, 2]
    known = replace(log, classes=4, class_names=("ant", "bee", "2", "dog"))
    bounds = class_bounds(build(known))
    assert [bound.lower > 0 for bound in bounds] == [True, False, True, False]
    told = worst_class(build(known), bounds, 0.3)
    assert not told.passed
    assert "the worst is class 1 (bee) with 0 of 0 images certified" in told.line
    assert told.line.endswith("; below that: 1 (bee), 3 (dog)")


def test_every_class_has_the_bound_of_its_own_images() -> None:
    label = [0] * 30 + [1] * 70
    log = with_classes(certified_log(80, 100), label, label)
    bounds = class_bounds(build(log))
    assert [(bound.images, bound.certified) for bound in bounds] == [(30, 30), (70, 50)]
    expected = [
        float(robust_lower(30, 30, 0.001, LEVEL)),
        float(robust_lower(50, 70, 0.001, LEVEL)),
    ]
    assert [bound.lower for bound in bounds] == expected
    told = worst_class(build(log), bounds, 0.5)
    assert (told.lower, told.estimate, told.images) == (min(expected), 50 / 70, 70)


@pytest.mark.parametrize("at", [0.3, 0.1, 1.2345678])
def test_certificates_of_one_radius_hold_there_and_below(at: float) -> None:
    """0.3 in binary is below 0.3 in decimal: a table prints 0.299999."""
    printed = float(int(at * 1e6) / 1e6)
    log = replace(log_of([0, 1, -1], [printed, printed, 0.0]), at=at)
    for radius in (at, at / 2, 0.0):
        assert certified_at(log, radius).tolist() == [True, False, False]


def test_notes_tell_what_limits_a_result() -> None:
    log = replace(random_log(0), noise="ordinary", asked=np.arange(300), n=1000)
    images, confidence, unfinished, ordinary = notes(build(log))
    assert images == "random0: images 0…199 (200 of 300), n = 1,000, α = 0.001."
    assert confidence.endswith("the gate passes with probability 0.05 at most.")
    assert "not finished" in unfinished and "floating point" in ordinary
    assert baseline_notes(log, log) == []
    [differ] = baseline_notes(log, replace(log, n=50, bound="runner-up"))
    assert "differ in n, bound, on which" in differ


# known value


def test_all_of_299_images_bound_the_accuracy_by_099() -> None:
    """The rule of 299: 0.99²⁹⁹ < 0.05."""
    assert robust_lower(298, 298, 0.0, LEVEL) < 0.99 < robust_lower(299, 299, 0.0, LEVEL)


# refusal


def test_certificates_of_one_radius_say_nothing_of_a_larger_one() -> None:
    log = replace(log_of([0], [0.5]), at=0.5)
    with pytest.raises(Mistake, match=r"radius must be at most 0.5, that of the certificates of s"):
        certified_at(log, 0.51)


@pytest.mark.parametrize("radius", [-0.1, float("nan"), float("inf")])
def test_a_radius_is_a_number_from_0_on(radius: float) -> None:
    with pytest.raises(Mistake, match=r"radius must be a number ≥ 0, got"):
        certified_at(log_of([0], [0.5]), radius)


def test_a_baseline_of_another_radius_is_refused() -> None:
    log = log_of([0], [0.5])
    with pytest.raises(
        Mistake, match=r"baseline must be certified at radius 0.25 or without --rad"
    ):
        not_worse(build(log, 0.25), replace(log, at=0.5), 0.1)
    told = not_worse(build(replace(log, at=0.5), 0.25), log, 0.1)
    assert told.images == 1


def test_a_baseline_of_other_images_is_refused() -> None:
    with pytest.raises(Mistake, match="must have images in common"):
        not_worse(build(log_of([0], [1.0])), log_of([0], [1.0], start=5), 0.0)
