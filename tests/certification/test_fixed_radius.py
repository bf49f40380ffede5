"""One radius: the certificates of a sequential test on networks whose truth is known."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from macer.certification.certificate import ABSTAIN
from macer.certification.conclusions import conclude_at
from macer.certification.fixed_radius import certify_at
from macer.certification.largest_radius import certify
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Sampler
from macer.smoothing.sequential import decisions, looks, p0_at
from macer.system.errors import Mistake

SIGMA = 0.5


class HalfSpace(nn.Module):
    """Class 1 where the first pixel is above ½, so that its radius is the distance to ½."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixel = x[:, 0, 0, 0]
        return torch.stack([torch.full_like(pixel, 0.5), pixel], dim=1)


def at_distance(distances: list[float]) -> torch.Tensor:
    images = torch.zeros(len(distances), 1, 2, 2)
    images[:, 0, 0, 0] = 0.5 + torch.tensor(distances)
    return images


def certified(distances: list[float], radius: float, **changes):
    return certify_at(HalfSpace(), at_distance(distances), radius=radius, sigma=SIGMA, **changes)


def test_the_verdict_is_that_of_the_sequential_test_on_the_same_votes():
    certificates = certified([0.1, 0.3, 0.35, 0.45], 0.3, n=20_000)
    p0 = p0_at(0.3, SIGMA)
    for certificate in certificates:
        assert certificate.drawn in looks(20_000)
        votes = certificate.estimation[certificate.selected]
        decision = decisions(votes, certificate.drawn, p0=p0, alpha=0.001, n_max=20_000)
        assert (decision == 1) == (certificate.label != ABSTAIN)
        assert certificate.radius == (0.3 if certificate.label != ABSTAIN else 0.0)


def test_an_image_far_inside_is_robust_after_few_samples_and_one_outside_is_not():
    far, outside = certified([0.5, 0.2], 0.3)
    assert (far.label, far.radius) == (1, 0.3) and far.drawn < 2000
    assert (outside.label, outside.radius) == (ABSTAIN, 0.0) and outside.drawn < 5000


def test_the_samples_are_the_first_ones_that_certify_draws():
    [early] = certified([0.5], 0.3)
    [whole] = certify(HalfSpace(), at_distance([0.5]), sigma=SIGMA, n=early.drawn)
    assert early.estimation == whole.estimation and early.selection == whole.selection


@pytest.mark.medium
def test_certificates_do_not_depend_on_the_company():
    distances = [0.1, 0.29, 0.31, 0.35, 0.5]
    settings = {"n": 10_000, "exact": False}
    together = certified(distances, 0.3, **settings)
    alone = [certified([d], 0.3, indices=[i], **settings)[0] for i, d in enumerate(distances)]
    assert together == alone


@pytest.mark.slow
def test_images_on_the_boundary_are_certified_with_probability_at_most_alpha():
    certificates = certified([0.3] * 400, 0.3 + 1e-7, n=3000, alpha=0.05)
    false = sum(certificate.label != ABSTAIN for certificate in certificates)
    assert 0 < false <= 33  # the 99.9% point of Binomial(400, .05)


@pytest.mark.medium
def test_peeking_as_if_each_look_were_the_only_one_certifies_falsely_more_often_than_alpha():
    """What the test above would catch."""
    random, false = np.random.default_rng(0), 0
    p0 = norm.cdf(0.6)
    for _ in range(400):
        votes, before = 0, 0
        for size in looks(3000):
            votes, before = votes + random.binomial(size - before, p0), size
            if norm.sf((votes / size - p0) / np.sqrt(p0 * (1 - p0) / size)) < 0.05:
                false += 1
                break
    assert false > 33


def test_a_score_does_not_estimate_images_whose_selected_class_is_wrong():
    wrong, right = certified([0.5, 0.5], 0.3, labels=[0, 1])
    assert (wrong.drawn, wrong.label, sum(wrong.estimation)) == (0, ABSTAIN, 0)
    assert right.label == 1


def test_an_abstention_bounds_nothing():
    robust, not_shown = certified([0.5, 0.1], 0.3)
    assert (robust.p_a, not_shown.p_a) == (p0_at(0.3, SIGMA), 0.0)


def test_another_seed_draws_other_noise():
    certificates = [certified([0.3], 0.3, n=2000, seed=seed) for seed in (0, 1, 1)]
    assert certificates[0] != certificates[1] == certificates[2]
    assert certificates[0][0].selection != certificates[1][0].selection


@pytest.mark.parametrize(
    ("exact", "seen"), [(None, torch.uint8), (True, torch.uint8), (False, torch.float32)]
)
def test_noise_is_exact_as_certifys_is(exact, seen, monkeypatch):
    images = torch.zeros(1, 1, 2, 2, dtype=torch.uint8)
    drawn, draw = [], Sampler.draw

    def watched(sampler, *arguments, **more):
        drawn.append((sampler.images.dtype, sampler.batch_size, sampler.indices))
        return draw(sampler, *arguments, **more)

    monkeypatch.setattr(Sampler, "draw", watched)
    certify_at(
        HalfSpace(),
        images,
        radius=0.1,
        sigma=SIGMA,
        n=200,
        exact=exact,
        batch_size=700,
        indices=[9],
    )
    assert {(*one[:2], *one[2]) for one in drawn} == {(seen, 700, 9)}


def test_labels_must_be_one_per_image():
    with pytest.raises(Mistake, match=r"^labels must be one per image, 2, got 1$"):
        certified([0.5, 0.5], 0.3, labels=[1])


def test_progress_adds_up_to_the_samples_drawn():
    drawn: list[int] = []
    certificates = certified([0.1, 0.5], 0.3, n=5000, n0=100, progress=drawn.append)
    assert sum(drawn) == 2 * 100 + sum(c.drawn for c in certificates) < 2 * 5100


def test_counts_alone_give_the_conclusion_again():
    certificates = certified([0.1, 0.3, 0.5], 0.3, n=5000)
    again = conclude_at(
        torch.tensor([c.selection for c in certificates]),
        torch.tensor([c.estimation for c in certificates]),
        torch.tensor([c.drawn for c in certificates]),
        radius=0.3,
        sigma=SIGMA,
        n=5000,
        alpha=0.001,
    )
    assert again == certificates


def test_looks_are_whole_chunks_but_the_last():
    assert all(size % CHUNK == 0 for size in looks(1050)[:-1])
    assert certified([0.5], 0.3, n=1050)[0].label == 1


def test_no_images_give_no_certificates():
    assert certify_at(HalfSpace(), torch.zeros(0, 1, 2, 2), radius=0.1, sigma=SIGMA) == []


def test_a_radius_out_of_reach_is_refused():
    with pytest.raises(Mistake, match="radius must be below"):
        certified([0.5], 3.0, n=1000)
