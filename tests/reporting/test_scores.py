"""ACR, certified accuracy and paired differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
from examples import log_of, published_logs, random_log, with_classes

from macer.data.selection import Selection
from macer.reporting.logs import CertificateLog, read_log, select
from macer.reporting.scores import (
    average_certified_radius,
    certified_accuracy,
    curve,
    given_up,
    outcomes,
    paired_difference,
    standard_error,
    usual_radii,
)
from macer.runs.zoo import shipped_certificates
from macer.system.errors import Mistake


@pytest.fixture(scope="module")
def macer() -> list[CertificateLog]:
    return published_logs()


def test_certified_accuracy_equals_its_definition() -> None:
    log = random_log(0)
    radii = [0.0, 0.1, 0.25, 0.5, 59 / 64, 1.0]
    for r, accuracy in zip(radii, certified_accuracy(log, radii), strict=True):
        certified = [p == 0 and s >= r for p, s in zip(log.predict, log.radius, strict=True)]
        assert accuracy == sum(certified) / len(certified)


@pytest.mark.parametrize("seed", range(5))
def test_acr_is_the_area_under_the_certified_accuracy_curve(seed: int) -> None:
    log = random_log(seed)
    x, y = curve(log)
    assert math.isclose(np.sum(np.diff(x) * y[1:]), average_certified_radius(log), rel_tol=1e-12)


def test_the_curve_is_the_certified_accuracy_between_its_knots() -> None:
    log = random_log(1)
    x, y = curve(log)
    middles = (x[:-2] + x[1:-1]) / 2
    assert np.array_equal(certified_accuracy(log, middles), y[1:-1])
    assert np.array_equal(certified_accuracy(log, x[:-1]), y[:-1])
    assert (x[0], y[0], y[-1]) == (0, np.mean(log.correct), 0)


def test_a_wrong_prediction_contributes_0_though_its_radius_is_positive() -> None:
    assert average_certified_radius(log_of([0, 1], [0.5, 3.0])) == 0.25


def test_an_abstention_contributes_0() -> None:
    assert average_certified_radius(log_of([0, -1], [0.5, 0.0])) == 0.25


def test_accuracy_at_radius_0_is_the_share_of_correct_predictions() -> None:
    assert certified_accuracy(log_of([0, 0, 1, -1], [0.0, 0.3, 0.7, 0.0]), [0]).tolist() == [0.5]


def test_an_image_certified_at_exactly_r_counts_at_r() -> None:
    accuracies = certified_accuracy(log_of([0], [0.25]), [0.25, 0.25 + 1e-12])
    assert accuracies.tolist() == [1, 0]


def test_the_standard_error_is_the_deviation_over_the_root_of_the_images() -> None:
    log = log_of([0, 0, 1, -1], [1.0, 2.0, 9.0, 0.0])
    mean = 3 / 4
    variance = ((1 - mean) ** 2 + (2 - mean) ** 2 + 2 * mean**2) / 3
    assert math.isclose(standard_error(log), math.sqrt(variance / 4))
    assert math.isnan(standard_error(log_of([0], [1.0])))
    assert standard_error(log_of([0, 0], [1.0, 3.0])) == 1.0


def test_a_log_does_not_differ_from_itself() -> None:
    log = random_log(2)
    assert paired_difference(log, log) == (0, 0, 200)


def test_a_paired_difference_is_antisymmetric_and_the_difference_of_acrs() -> None:
    a, b = random_log(3), random_log(4)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert math.isclose(there.difference, average_certified_radius(a) - average_certified_radius(b))
    assert (there.difference, there.standard_error) == (-back.difference, back.standard_error)


def test_a_paired_difference_is_over_the_common_images() -> None:
    a = log_of([0, 0, 0, 0], [9.0, 0.5, 0.75, 0.5])
    b = log_of([0, 1, 0, 0], [0.25, 0.5, 0.25, 9.0], start=1)
    # Images 1, 2, 3 gain 1/4, 3/4 (b is wrong), 1/4: mean 5/12, variance 1/12.
    assert paired_difference(a, b) == pytest.approx((5 / 12, math.sqrt(1 / 12 / 3), 3))


def test_labels_are_compared_image_by_image_wherever_they_stand() -> None:
    a = with_classes(log_of([0] * 4, [0.5] * 4), np.array([3, 1, 2, 5]), np.array([3, 1, 2, 5]))
    b = with_classes(
        log_of([0] * 4, [0.25] * 4, start=1), np.array([1, 2, 5, 9]), np.array([1, 2, 5, 9])
    )
    assert paired_difference(a, b) == (0.25, 0, 3)


def test_a_constant_gain_has_no_standard_error() -> None:
    a, b = log_of([0, 0, 0], [0.5, 1.0, 1.5]), log_of([0, 0, 0], [0.25, 0.75, 1.25])
    assert paired_difference(a, b) == (0.25, 0, 3)


@pytest.mark.parametrize(
    ("largest", "radii"),
    [
        (0.0, (0,)),
        (0.953, (0, 0.25, 0.5, 0.75)),
        (1.0, (0, 0.25, 0.5, 0.75, 1)),
        (2.49, tuple(i / 4 for i in range(10))),
        (2.5, tuple(i / 4 for i in range(11))),
        (5.0, tuple(i / 2 for i in range(11))),
        (3.81, (0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)),
        (7.6, (0, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_radii_go_up_to_the_largest_certified_one(largest: float, radii: tuple[float]) -> None:
    # The wrong prediction's radius is not certified.
    assert usual_radii([log_of([0, 1], [largest, 99.0]), log_of([0], [0.0])]) == radii


def test_an_image_that_a_score_passed_over_is_wrong_and_no_abstention() -> None:
    log = log_of([0, 1, -1, -1], [0.5, 0.5, 0.0, 0.0])
    assert outcomes(log) == {"correct": 1, "wrong": 1, "abstained": 2}
    estimated = np.array([True, True, False, True])
    scored = replace(log, estimated=estimated)
    assert outcomes(scored) == {"correct": 1, "wrong": 2, "abstained": 1}
    assert outcomes(select(scored, Selection(2))) == {"correct": 0, "wrong": 1, "abstained": 1}


def test_a_table_says_which_images_its_score_passed_over() -> None:
    """Of the record at σ = 1, certified with --score: no wrong class was estimated."""
    log = read_log(shipped_certificates("zoo:cifar10-1.00-record"))
    assert log.estimated is not None
    assert outcomes(log) == {"correct": 819, "wrong": 1145, "abstained": 36}
    assert outcomes(replace(log, estimated=None))["wrong"] == 0


def test_outcomes_add_up_to_the_images() -> None:
    counts = outcomes(log_of([0, 0, 1, -1, -1, -1], [0.1] * 6))
    assert counts == {"correct": 2, "wrong": 1, "abstained": 3}


def of_classes(*correct_of_images: tuple[int, int]) -> CertificateLog:
    """A log of several classes, each with so many images correct of so many."""
    label = np.repeat(np.arange(len(correct_of_images)), [m for _, m in correct_of_images])
    right = np.concatenate([np.arange(m) < c for c, m in correct_of_images])
    log = log_of([0] * len(label), [0.5] * len(label))
    return with_classes(log, label, np.where(right, label, label + 1))


def test_a_class_with_fewer_than_one_image_in_twenty_correct_is_given_up() -> None:
    assert given_up(of_classes((0, 40), (1, 21), (1, 20), (40, 40))) == [(0, 0, 40), (1, 1, 21)]


def test_of_few_images_nothing_is_concluded() -> None:
    assert given_up(of_classes((0, 19), (19, 19))) == []
    assert given_up(of_classes((0, 20), (20, 20))) == [(0, 0, 20)]


def test_abstentions_are_not_correct() -> None:
    log = of_classes((30, 30), (30, 30))
    assert given_up(with_classes(log, log.label, np.where(log.label == 1, -1, 0))) == [(1, 0, 30)]


def test_the_published_macer_at_sigma_1_gives_up_the_deer(macer: list[CertificateLog]) -> None:
    assert [given_up(log) for log in macer] == [[], [], [(4, 25, 1000)]]


def test_published_logs_give_published_acrs(macer: list[CertificateLog]) -> None:
    assert [f"{average_certified_radius(log):.3f}" for log in macer] == ["0.531", "0.691", "0.744"]


def test_images_500_to_999_give_the_papers_acrs(macer: list[CertificateLog]) -> None:
    windows = [select(log, Selection(500, 1000)) for log in macer]
    acrs = [average_certified_radius(log) for log in windows]
    assert [f"{acr:.3f}" for acr in acrs] == ["0.555", "0.725", "0.793"]
    # [Zhai+20, Tab. 1]: the same models certified with other noise
    assert acrs == pytest.approx([0.556, 0.726, 0.792], abs=0.0015)


def test_standard_errors_of_500_images_are_known(macer: list[CertificateLog]) -> None:
    errors = [standard_error(select(log, Selection(500, 1000))) for log in macer]
    assert [f"{error:.3f}" for error in errors] == ["0.017", "0.031", "0.051"]


def test_images_500_to_999_give_the_papers_accuracies(macer: list[CertificateLog]) -> None:
    # [Zhai+20, Tab. 1], the rows of MACER: two decimals, certified with other noise
    published = [
        [0.81, 0.71, 0.59, 0.43, 0, 0, 0, 0, 0, 0],
        [0.66, 0.60, 0.53, 0.46, 0.38, 0.29, 0.19, 0.12, 0, 0],
        [0.45, 0.41, 0.38, 0.35, 0.32, 0.29, 0.25, 0.22, 0.18, 0.16],
    ]
    for log, row in zip(macer, published, strict=True):
        accuracies = certified_accuracy(select(log, Selection(500, 1000)), np.arange(10) / 4)
        assert accuracies.tolist() == pytest.approx(row, abs=0.01)


def test_logs_that_do_not_belong_together_are_refused() -> None:
    a, b = log_of([0, 0], [1.0, 1.0], name="a"), log_of([0, 0], [1.0, 1.0], name="b", start=2)
    message = "a and b must have images in common, got 0…1 and 2…3: certify the same images"
    with pytest.raises(Mistake, match=message):
        paired_difference(a, b)
    one, two = replace(a, data_sha256="ab" * 32), replace(a, name="b", data_sha256="cd" * 32)
    message = (
        "a and b must be of the same data, got None of SHA-256 abababababababab… and None of "
        "SHA-256 cdcdcdcdcdcdcdcd…: certify the same images"
    )
    with pytest.raises(Mistake, match=message):
        paired_difference(one, two)
    assert paired_difference(a, two).images == 2  # a log of the field does not say
    other = replace(a, name="b", label=np.array([0, 7]), predict=np.array([0, 7]))
    message = "a and b must have the same labels, got different ones for 1 of 2 images, first idx 1"
    with pytest.raises(Mistake, match=message):
        paired_difference(a, other)
