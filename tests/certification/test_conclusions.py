"""Certificates and labels from given counts: no network, no noise."""

import numpy as np
import pytest
import reference
import torch

from macer.certification.certificate import ABSTAIN
from macer.certification.conclusions import conclude, conclude_labels, worth_estimating
from macer.smoothing.bounds import BOUNDS, Bound
from macer.smoothing.tally import Tally


def tally_of(votes):
    votes = torch.as_tensor(votes)
    return Tally(votes, votes, votes)


# reference


def test_certify_is_cohens_certify():
    random = np.random.default_rng(0)
    counts0 = random.multinomial(100, [0.7, 0.2, 0.1], size=200)
    p = random.dirichlet([8, 1, 1], size=200)
    counts = np.stack([random.multinomial(1000, row) for row in p])
    ours = conclude(
        tally_of(counts0), tally_of(counts), sigma=0.5, n=1000, alpha=0.001, bound="clopper-pearson"
    )
    for certificate, c0, c in zip(ours, counts0, counts, strict=True):
        label, radius = reference.certify(c0, c, sigma=0.5, n=1000, alpha=0.001)
        assert certificate.label == label
        assert certificate.radius == pytest.approx(radius, rel=1e-9)


def concluded(counts0, counts, *, n, alpha=0.001, sigma=0.5, bound="runner-up"):
    return conclude(tally_of(counts0), tally_of(counts), sigma=sigma, n=n, alpha=alpha, bound=bound)


@pytest.mark.medium
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_the_runner_up_bound_is_that_of_all_classes_at_once(classes):
    """Some samples vote for nobody."""
    random = np.random.default_rng(classes)
    p = random.dirichlet([6, 3, *[0.5] * (classes - 1)], size=200)
    counts = np.stack([random.multinomial(1000, row) for row in p])[:, :classes]
    counts0 = np.stack([random.multinomial(100, row) for row in p])[:, :classes]
    ours = concluded(counts0, counts, n=1000)
    for certificate, c0, c in zip(ours, counts0, counts, strict=True):
        label, radius = reference.certify_runner_up(c0, c, sigma=0.5, n=1000, alpha=0.001)
        assert certificate.label == label
        assert certificate.radius == pytest.approx(radius, rel=1e-9)
    labels = [c.label for c in ours]
    assert labels.count(ABSTAIN) > 10 and labels.count(0) > 10


def test_predict_is_cohens_predict():
    random = np.random.default_rng(1)
    counts = random.multinomial(100, [0.45, 0.35, 0.2], size=300)
    ours = conclude_labels(torch.from_numpy(counts), alpha=0.05)
    assert ours == [reference.predict(c, alpha=0.05) for c in counts]
    assert 0 < ours.count(ABSTAIN) < 300


# law


def test_a_bound_of_exactly_one_half_is_no_certificate(monkeypatch):
    near_half = Bound(lambda *_: np.array([0.5, 0.5 + 1e-9]), soft=False)
    monkeypatch.setitem(BOUNDS, "clopper-pearson", near_half)
    half, more = conclude(
        tally_of([[6, 4]] * 2), tally_of([[60, 40]] * 2), sigma=1.0, n=100, alpha=0.01,
        bound="clopper-pearson",
    )  # fmt: skip
    assert (half.label, half.radius) == (ABSTAIN, 0.0)
    assert more.label == 0 and more.radius > 0


def test_a_class_without_a_majority_is_certified_by_the_runner_up_bound_alone():
    counts = [[450, *[55] * 10]]
    [cohens] = concluded(counts, counts, n=1000, bound="clopper-pearson")
    [ours] = concluded(counts, counts, n=1000)
    assert cohens.label == ABSTAIN and cohens.p_b is None
    assert ours.label == 0 and ours.p_a < 0.5 and 0.055 < ours.p_b < 0.1


def test_at_the_ceiling_and_for_two_classes_p_b_is_1_minus_p_a():
    n = 1000
    counts = [[n, 0, 0], [n - 1, 0, 0], [900, 100, 0], [n - 1, 1, 0]]
    for certificate in concluded(counts, counts, n=n):
        assert certificate.p_b == 1 - certificate.p_a
    [ceiling] = concluded([[n, 0, 0]], [[n, 0, 0]], n=n)
    assert ceiling.p_a == pytest.approx(0.0009 ** (1 / n), rel=1e-12)
    [capped] = concluded([[700, 100, 100]], [[700, 100, 100]], n=n)  # 100 votes for nobody
    assert 0.2 < capped.p_b < 1 - capped.p_a


@pytest.mark.parametrize(
    "counts", [[500, 500, 0], [0, 0, 0], [334, 333, 333], [1, 0, 0], [0, 9, 0]]
)
def test_a_tie_and_votes_for_nobody_are_abstentions_whatever_the_bound(counts):
    for bound in ("clopper-pearson", "runner-up"):
        [certificate] = concluded([[9, 1, 0]], [counts], n=1000, bound=bound)
        assert (certificate.label, certificate.radius) == (ABSTAIN, 0.0)


def test_a_vote_for_nobody_is_one_against_the_class_and_for_every_rival():
    n = 1000
    [cast] = concluded([[9, 0, 0]], [[700, 200, 100]], n=n)
    [lost] = concluded([[9, 0, 0]], [[690, 200, 100]], n=n)
    assert lost.p_a < cast.p_a and lost.p_b > cast.p_b
    [same] = concluded([[9, 0, 0]], [[690, 210, 100]], n=n)
    assert (same.p_a, same.p_b) == (lost.p_a, lost.p_b)


def test_a_network_of_one_class_has_no_rival():
    [certificate] = concluded([[10]], [[1000]], n=1000)
    assert certificate.label == 0 and certificate.p_b == 1 - certificate.p_a


def test_predict_returns_a_label_whose_p_value_is_alpha_itself():
    """All of 10 votes: P = 2 · 2⁻¹⁰."""
    votes = torch.tensor([[10, 0], [9, 1]])
    assert conclude_labels(votes, alpha=2.0**-9) == [0, ABSTAIN]
    assert conclude_labels(votes, alpha=0.0019) == [ABSTAIN] * 2


@pytest.mark.parametrize("n", [2**31 - 2, 2**31, 10**12])
def test_predict_answers_for_more_votes_than_an_int32_holds(n):
    """The lead of 4 deviations, P = 6.3e-5 for the normal distribution; and one that is none."""
    lead = round(2 * n**0.5)
    votes = torch.tensor([[n // 2 - lead, n // 2 + lead], [n // 2, n // 2]])
    assert conclude_labels(votes, alpha=6.4e-5) == [1, ABSTAIN]
    assert conclude_labels(votes, alpha=6.3e-5) == [ABSTAIN] * 2
    assert conclude_labels(torch.tensor([[0, 0], [1, 0]]), alpha=0.999) == [ABSTAIN] * 2


def test_only_images_whose_selected_class_is_right_are_worth_a_scores_samples():
    selected = torch.tensor([2, 0, 1])
    assert worth_estimating(selected, None).tolist() == [True] * 3
    assert worth_estimating(selected, [2, 1, 1]).tolist() == [True, False, True]


def test_the_class_is_selected_on_the_selection_samples_alone():
    [certificate] = conclude(
        tally_of([[60, 40]]), tally_of([[0, 1000]]), sigma=1.0, n=1000, alpha=0.001,
        bound="clopper-pearson",
    )  # fmt: skip
    assert certificate.selected == 0 and certificate.label == ABSTAIN
