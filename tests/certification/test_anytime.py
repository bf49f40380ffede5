"""An answer at any time: certificates that grow, on networks whose truth is known."""

from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import macer
from macer.certification import anytime
from macer.certification.anytime import certify_anytime
from macer.certification.certificate import ABSTAIN
from macer.certification.conclusions import conclude
from macer.certification.largest_radius import certify
from macer.smoothing.confidence import clopper_pearson_lower
from macer.smoothing.confidence_sequence import confidence_sequence_lower
from macer.smoothing.copies import CHUNK
from macer.smoothing.tally import Tally
from macer.system.errors import Mistake

SIGMA = 0.5
DISTANCES = [0.1, 0.3, 0.9]


class HalfSpace(nn.Module):
    """Class 1 where the first pixel is above 0, so that its radius is the distance to 0."""

    def forward(self, x):
        pixel = x[:, 0, 0, 0]
        return torch.stack([-pixel, pixel], dim=1)


def at_distance(distances):
    images = torch.zeros(len(distances), 1, 2, 2)
    images[:, 0, 0, 0] = torch.tensor(distances)
    return images


class Clock:
    """A time that passes when a test says so."""

    now = 0.0

    def monotonic(self):
        return self.now


class Slow(HalfSpace):
    """Takes a tenth of a millisecond of a clock for a row."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def forward(self, x):
        self.clock.now += 1e-4 * len(x)
        return super().forward(x)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(anytime, "time", clock)
    return clock


def looked(distances=DISTANCES, **changes):
    settings = {"sigma": SIGMA} | changes
    return list(certify_anytime(HalfSpace(), at_distance(distances), **settings))


def as_tally(rows):
    votes = torch.tensor(rows)
    return Tally(votes, votes, votes)


# reference


def test_every_certificate_is_what_conclude_gives_from_its_counts():
    for certificates in looked(n=5000, exact=False):
        again = conclude(
            as_tally([c.selection for c in certificates]),
            as_tally([c.estimation for c in certificates]),
            sigma=SIGMA, n=5000, alpha=0.001, bound="anytime",
            drawn=torch.tensor([c.drawn for c in certificates]), exact=False,
        )  # fmt: skip
        assert again == certificates


def test_every_radius_is_that_of_the_confidence_sequence():
    for certificate in (c for certificates in looked(n=3000) for c in certificates):
        votes = certificate.estimation[certificate.selected]
        p_a = float(confidence_sequence_lower(votes, certificate.drawn, 0.001))
        assert certificate.p_a == p_a
        expected = SIGMA * norm.ppf(p_a) if p_a > 0.5 else 0.0
        assert certificate.radius == pytest.approx(expected, rel=1e-12)
        assert (certificate.label == ABSTAIN) == (p_a <= 0.5)


# law


@pytest.mark.medium
def test_a_certificate_rests_on_the_first_samples_that_certify_draws():
    for certificates in looked(n=2000):
        for i, one in enumerate(certificates):
            [again] = certify(
                HalfSpace(), at_distance(DISTANCES[i : i + 1]), sigma=SIGMA, n=one.drawn,
                bound="anytime", indices=[i],
            )  # fmt: skip
            assert again == one


def test_no_radius_ever_shrinks_and_the_last_look_is_at_n():
    looks = looked(n=4050)
    radii = np.array([[c.radius for c in certificates] for certificates in looks])
    assert (np.diff(radii, axis=0) >= 0).all()
    assert radii[-1, 2] > radii[0, 2] > 0
    whole = certify(HalfSpace(), at_distance(DISTANCES), sigma=SIGMA, n=4050, bound="anytime")
    assert [max(a.radius, b.radius) for a, b in zip(looks[-1], whole, strict=True)] == [
        c.radius for c in looks[-1]
    ]
    assert looks[-1][2].drawn == 4050


def test_an_abstention_is_the_latest():
    for certificates, size in zip(looked([0.0], n=1000), (200, 400, 600, 800, 1000), strict=True):
        assert (certificates[0].label, certificates[0].drawn) == (ABSTAIN, size)


@pytest.mark.medium
def test_certificates_do_not_depend_on_the_company_or_the_threads():
    together = looked(n=3000)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for i, distance in enumerate(DISTANCES):
                alone = looked([distance], n=3000, indices=[i])
                assert [c for [c] in alone] == [certificates[i] for certificates in together]
    finally:
        torch.set_num_threads(before)


@pytest.mark.medium
def test_stopping_where_the_radius_looks_best_keeps_the_level():
    """The truth is .3; each image stops at the look with its largest radius."""
    last = looked([0.3] * 400, n=1000, alpha=0.05, exact=False)[-1]
    false = sum(certificate.radius > 0.3 for certificate in last)
    assert false <= 33  # the 99.9% point of Binomial(400, .05)
    assert any(certificate.drawn < 1000 for certificate in last)


def test_the_same_rule_with_a_bound_for_one_n_does_not():
    """What the test above would catch."""
    random, sizes = np.random.default_rng(0), np.arange(200, 1001, 200)
    votes = np.cumsum(random.binomial(200, norm.cdf(0.6), size=(4000, len(sizes))), axis=1)
    best = clopper_pearson_lower(votes, sizes, 0.05).max(axis=1)
    assert (best > norm.cdf(0.6)).mean() > 0.0825


def test_a_caller_may_stop_whenever_she_likes():
    drawn: list[int] = []
    looks = certify_anytime(
        HalfSpace(), at_distance([0.9]), sigma=SIGMA, progress=drawn.append, n=10**9
    )
    [[certificate]] = islice(looks, 1)
    assert (certificate.label, certificate.drawn) == (1, 2 * CHUNK)
    assert sum(drawn) == 100 + 2 * CHUNK


def test_a_score_does_not_estimate_images_whose_selected_class_is_wrong():
    for wrong, right in looked([0.9, 0.9], labels=[0, 1], n=1000):
        assert (wrong.drawn, wrong.label, sum(wrong.estimation)) == (0, ABSTAIN, 0)
        assert right.label == 1
    [[nothing]] = looked([0.9], labels=[0], n=1000)
    assert nothing.drawn == 0


def test_a_deadline_is_kept_and_the_first_look_is_always_finished(clock):
    images = at_distance([0.9])
    for seconds in (1e-6, 0.5, 1.0):
        looks = certify_anytime(Slow(clock), images, sigma=SIGMA, seconds=seconds)
        certificate = next(looks)[0]
        began = clock.now - 1e-4 * 3 * CHUNK  # 100 samples select the class, 200 are a look
        for [certificate] in looks:  # noqa: B007
            pass
        assert certificate.label == 1 and certificate.drawn % CHUNK == 0
        if seconds == 1e-6:
            assert certificate.drawn == 2 * CHUNK
        else:
            assert seconds / 2 < clock.now - began <= seconds
            assert 2 * CHUNK < certificate.drawn < 100_000


def test_the_time_of_the_caller_counts_for_the_deadline_but_not_for_the_pace(clock):
    looks = certify_anytime(Slow(clock), at_distance([0.9]), sigma=SIGMA, seconds=1.0)
    next(looks)
    clock.now += 0.5
    assert next(looks)
    clock.now += 0.6
    assert next(looks, None) is None


@pytest.mark.medium
def test_a_first_look_that_could_certify_nothing_is_left_out():
    """At α = 10⁻⁹⁰ even 200 votes that are all alike show nothing."""
    [first], *_ = looked([1.0], sigma=0.1, n=1000, alpha=1e-90)
    assert first.drawn == 400 and first.label == 1


# known value


def test_looks_begin_with_two_chunks_and_grow_by_an_eighth():
    sizes = [certificate.drawn for [certificate] in looked([0.0], n=5050)]
    assert sizes == [*range(200, 3201, 200), 3600, 4000, 4400, 4800, 5050]


def test_it_is_public_and_checks_its_settings_when_it_is_called():
    assert macer.certify_anytime is certify_anytime
    with pytest.raises(Mistake, match=r"^sigma must be > 0, got 0$"):
        certify_anytime(HalfSpace(), at_distance([0.1]), sigma=0)


def test_no_images_give_no_certificates():
    assert looked([]) == [[]]


# refusal


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_seconds_must_be_above_0(seconds):
    with pytest.raises(Mistake, match=r"^seconds must be > 0, got "):
        looked(seconds=seconds)


def test_too_few_samples_are_refused():
    message = (
        r"^n must be at least 1[0-9] to certify anything at alpha 0.001 with the anytime bound"
    )
    with pytest.raises(Mistake, match=message):
        looked(n=5)
