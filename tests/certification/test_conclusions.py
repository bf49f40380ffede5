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


def test_predict_returns_a_label_whose_p_value_is_alpha_itself():
    """All of 10 votes: P = 2 · 2⁻¹⁰."""
    votes = torch.tensor([[10, 0], [9, 1]])
    assert conclude_labels(votes, alpha=2.0**-9) == [0, ABSTAIN]
    assert conclude_labels(votes, alpha=0.0019) == [ABSTAIN] * 2


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
