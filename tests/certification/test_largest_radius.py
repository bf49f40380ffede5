import inspect
import math
from functools import partial

import numpy as np
import pytest
import reference
import torch
from scipy.stats import binom, norm
from torch import nn

from macer.certification.certificate import ABSTAIN
from macer.certification.fixed_radius import certify_at
from macer.certification.largest_radius import (
    Kind,
    SoftSettings,
    certify,
    certify_bernstein,
    certify_hoeffding,
    certify_kinds,
    predict,
)
from macer.smoothing.bounds import BOUNDS
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Sampler
from macer.smoothing.streams import Purpose, fill_normal
from macer.smoothing.tally import SOFT_UNIT
from macer.system.errors import Mistake

SHAPE = (1, 4, 4)


class HalfSpace(nn.Module):
    """Class 1 where w·x > c, with ‖w‖ = 1: the smoothed classifier's radius is |w·x − c|."""

    def __init__(self, c, sharpness=1.0):
        super().__init__()
        self.w = torch.full((16,), 0.25)
        self.c = c
        self.sharpness = sharpness

    def forward(self, x):
        margin = self.sharpness * (x.flatten(1) @ self.w - self.c)
        return torch.stack([-margin, margin], dim=1)


class Constant(nn.Module):
    def __init__(self, logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def at_distance(distances):
    """Images whose distance to the plane w·x = 2 is given; w·x = 4 · (their constant pixel)."""
    values = (2 + torch.as_tensor(distances, dtype=torch.float64)) / 4
    return values.float()[:, None, None, None].expand(-1, *SHAPE).contiguous()


def random_images(images=5, seed=0):
    return torch.rand(images, *SHAPE, generator=torch.Generator().manual_seed(seed))


def small_network(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, classes))


# reference


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (certify_hoeffding, reference.certify_hoeffding),
        (certify_bernstein, reference.certify_bernstein),
    ],
)
@pytest.mark.parametrize("beta", [1.0, 16.0])
def test_soft_certificates_are_algorithm_2(ours, theirs, beta):
    """The samples are drawn again from the same streams and handed to the transcription."""
    model, images = HalfSpace(2.0, sharpness=3.0), at_distance([0.4, -0.3, 0.02, 0.9])
    settings = {"sigma": 0.25, "n0": 100, "n": 2000, "alpha": 0.001, "seed": 3}
    certificates = ours(model, images, beta=beta, **settings)
    z0, z = (soft_samples(model, images, num, purpose, beta) for num, purpose in STAGES)
    for i, certificate in enumerate(certificates):
        label, radius = theirs(z0[i], z[i], sigma=0.25, alpha=0.001)
        assert certificate.label == label
        assert certificate.radius == pytest.approx(radius, abs=1e-5)


STAGES = ((100, Purpose.SELECTION), (2000, Purpose.ESTIMATION))


def soft_samples(model, images, num, purpose, beta):
    """(images, num, classes): the softmax outputs on each image's noise, chunk by chunk."""
    samples = []
    for index, image in enumerate(images):
        rows = []
        for start in range(0, num, CHUNK):
            noise = torch.empty(min(CHUNK, num - start), 4, 4, 1)  # channels last
            fill_normal(noise, seed=3, purpose=purpose, image=index, chunk=start // CHUNK)
            noisy = image + 0.25 * noise.permute(0, 3, 1, 2)
            rows += [reference.softmax(u, beta) for u in model(noisy).numpy()]
        samples.append(np.stack(rows))
    return samples


# law


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
def test_a_half_spaces_certificate_exceeds_its_distance_at_most_at_rate_alpha(bound):
    images, alpha, distance = 1000, 0.05, 0.1
    certificates = certify(
        HalfSpace(2.0, sharpness=100.0),
        at_distance([distance] * images),
        sigma=0.25,
        n0=20,
        n=200,
        alpha=alpha,
        bound=bound,
        beta=100.0,
    )
    violations = sum(c.radius > distance or c.label == 0 for c in certificates)
    assert violations <= binom.ppf(0.9999, images, alpha)


@pytest.mark.medium
def test_a_half_spaces_certificate_comes_within_3_percent_of_its_distance():
    distances = [0.25, -0.5, 0.6]
    certificates = certify(HalfSpace(2.0), at_distance(distances), sigma=0.25)
    for certificate, distance in zip(certificates, distances, strict=True):
        assert certificate.label == (distance > 0)
        assert 0.97 * abs(distance) < certificate.radius < abs(distance)


@pytest.mark.medium
def test_the_constant_classifier_has_the_largest_radius_that_n_allows():
    [certificate] = certify(Constant([0.0, 1.0]), torch.zeros(1, *SHAPE), sigma=1.0)
    assert certificate.label == 1
    assert certificate.radius == pytest.approx(3.81145656, abs=1e-8)
    assert certificate.radius <= norm.ppf(0.001 ** (1 / 100_000))
    assert certificate.estimation == (0, 100_000)


def test_an_undecided_classifier_is_abstained_from():
    [certificate] = certify(HalfSpace(2.0), at_distance([0.0]), sigma=0.25, n=1000)
    assert certificate.label == ABSTAIN and certificate.radius == 0.0
    assert math.copysign(1, certificate.radius) == 1
    assert predict(HalfSpace(2.0), at_distance([0.0]), sigma=0.25, n=1000) == [ABSTAIN]


def test_predict_returns_the_smoothed_classifiers_label():
    assert predict(HalfSpace(2.0), at_distance([0.2, -0.2]), sigma=0.25) == [1, 0]


def test_the_soft_radius_tends_to_the_hard_one_as_beta_grows():
    settings = {"sigma": 0.25, "n": 1000, "n0": 50}
    images = at_distance([0.2])
    [soft] = certify_hoeffding(HalfSpace(2.0), images, beta=1e6, **settings)
    [hard] = certify(HalfSpace(2.0), images, **settings)
    shares = np.array(soft.estimation) * SOFT_UNIT
    np.testing.assert_allclose(shares, hard.estimation, atol=0.5)
    assert soft.radius < hard.radius  # Hoeffding is the looser bound


@pytest.mark.parametrize("batch_size", [1, 7, 64, 100, 1000, 5000])
def test_certificates_do_not_depend_on_the_batch_size(batch_size):
    model, images = small_network(), random_images()
    settings = {"sigma": 0.5, "n0": 50, "n": 600}
    expected = certify(model, images, batch_size=300, **settings)
    assert certify(model, images, batch_size=batch_size, **settings) == expected


def test_certificates_do_not_depend_on_order_or_company():
    model, images = small_network(), random_images(6)
    settings = {"sigma": 0.5, "n0": 50, "n": 600}
    together = certify(model, images, **settings)
    order = [4, 0, 5]
    assert certify(model, images[order], indices=order, **settings) == [together[i] for i in order]


def test_images_have_noise_of_their_own():
    model, images = small_network(), random_images(1).expand(2, *SHAPE)
    first, second = certify(model, images, sigma=0.5, n=1000)
    assert first.estimation != second.estimation


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_score_estimates_only_where_the_selected_class_is_right(bound):
    model, images = small_network(), random_images(12)
    settings = {"sigma": 0.5, "n0": 50, "n": 600, "bound": bound}
    everything = certify(model, images, **settings)
    labels = [c.selected if i % 3 else (c.selected + 1) % 3 for i, c in enumerate(everything)]
    drawn = []
    scored = certify(model, images, labels=labels, progress=drawn.append, **settings)
    for i, (whole, score) in enumerate(zip(everything, scored, strict=True)):
        if i % 3:
            assert score == whole
        else:
            assert (score.label, score.radius, sum(score.estimation)) == (ABSTAIN, 0.0, 0)
            assert score.selection == whole.selection and not any(score.squares)
        assert score.drawn == (600 if i % 3 else 0)
    assert sum(drawn) == 12 * 50 + 8 * 600


class Asked(Exception):
    """Ends a call whose question was all that was wanted."""


def asked_of_the_sampler(monkeypatch, act):
    """The sampler that draws first, and what it is asked for."""
    asked = {}

    def ask(sampler, num, purpose):
        asked.update(vars(sampler), num=num, purpose=purpose)
        raise Asked

    monkeypatch.setattr(Sampler, "draw", ask)
    with pytest.raises(Asked):
        act()
    return asked


@pytest.mark.parametrize("act", [certify, certify_bernstein, predict])
def test_what_is_asked_for_reaches_the_samples(act, monkeypatch):
    images, drawn = random_images(3), []
    settings = {"sigma": 0.75, "n": 60, "alpha": 0.01, "seed": 9, "batch_size": 300}
    settings |= {"indices": [4, 0, 2], "progress": drawn.append, "row_by_row": True}
    settings |= {"num_classes": 7}
    if act is not predict:
        settings |= {"n0": 60}
    asked = asked_of_the_sampler(monkeypatch, lambda: act(Constant([0.0]), images, **settings))
    names = ("sigma", "seed", "batch_size", "progress", "indices", "row_by_row", "num_classes")
    assert [asked[name] for name in names] == [0.75, 9, 300, drawn.append, [4, 0, 2], True, 7]
    assert asked["num"] == 60 and torch.equal(asked["images"], images)
    assert asked["betas"] == ((1.0,) if act is certify_bernstein else ())
    purpose = Purpose.PREDICTION if act is predict else Purpose.SELECTION
    assert asked["purpose"] == purpose


def test_images_are_numbered_from_0_only_where_nobody_numbers_them():
    settings = {"sigma": 0.5, "n0": 50, "n": 200}
    model, images = small_network(), random_images(3)
    numbered = certify(model, images, indices=[0, 1, 2], **settings)
    assert certify(model, images, **settings) == numbered
    others = certify(model, images, indices=[5, 5, 1], **settings)
    assert others[2] != numbered[2] and others[0] != numbered[0]
    assert certify(model, images[[0, 0]], indices=[5, 5], **settings) == [others[0]] * 2


def test_soft_certificates_take_every_keyword_of_certify_but_the_bound():
    keywords = inspect.signature(certify).parameters.keys() - {"model", "images", "bound"}
    assert SoftSettings.__annotations__.keys() == keywords
    assert SoftSettings.__required_keys__ == {"sigma"}


@pytest.mark.parametrize("act", [certify, predict])
@pytest.mark.parametrize(
    ("exact", "given", "seen"),
    [(None, torch.uint8, torch.uint8), (True, torch.uint8, torch.uint8),
     (False, torch.uint8, torch.float32), (None, torch.float32, torch.uint8),
     (True, torch.float32, torch.uint8), (False, torch.float32, torch.float32)],
)  # fmt: skip
def test_noise_is_exact_unless_ordinary_noise_is_asked_for_8_bit_images(
    act, exact, given, seen, monkeypatch
):
    images = torch.randint(0, 256, (2, *SHAPE), dtype=torch.uint8)
    if given != torch.uint8:
        images = images / 255
    asked = asked_of_the_sampler(
        monkeypatch, lambda: act(Constant([0.0]), images, sigma=0.5, n=50, exact=exact)
    )
    assert asked["images"].dtype == seen


def test_selection_and_estimation_use_different_noise():
    """With n0 = n and one shared stream the two tallies would be equal for every image."""
    certificates = certify(small_network(), random_images(8), sigma=0.5, n0=1000, n=1000)
    assert all(c.selection != c.estimation for c in certificates)


def test_uint8_images_are_divided_by_255():
    images = torch.randint(0, 256, (3, *SHAPE), dtype=torch.uint8)
    settings = {"sigma": 0.5, "n": 200}
    model = small_network()
    ordinary = certify(model, images, exact=False, **settings)
    assert ordinary == certify(model, images / 255, exact=False, **settings)
    assert certify(model, images, **settings) == certify(
        model, images / 255, exact=True, **settings
    )
    assert ordinary != certify(model, images, **settings)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_logits_vote_for_nobody(bad):
    model = Constant([0.0, bad])
    [certificate] = certify(model, torch.zeros(1, *SHAPE), sigma=1.0, n=200)
    assert certificate.label == ABSTAIN and certificate.estimation == (0, 0)
    [soft] = certify_bernstein(model, torch.zeros(1, *SHAPE), sigma=1.0, n=200)
    assert soft.label == ABSTAIN and soft.estimation == (0, 0)


def test_the_network_sees_one_batch_shape():
    shapes = set()

    class Watching(Constant):
        def forward(self, x):
            shapes.add(tuple(x.shape))
            return super().forward(x)

    certify(Watching([0.0, 1.0]), torch.zeros(3, *SHAPE), sigma=1.0, n0=5, n=277, batch_size=50)
    assert shapes == {(CHUNK, *SHAPE)}


def test_the_model_is_evaluated_in_eval_mode_and_left_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.Dropout(0.5))
    model.train()
    model[2].eval()
    modes = []
    model[1].register_forward_hook(lambda module, *_: modes.append(module.training))
    certify(model, random_images(1), sigma=0.5, n=50)
    assert not any(modes)
    assert [part.training for part in model] == [True, True, False]


def test_kinds_from_one_pass_are_those_that_each_gives_alone():
    model = small_network(classes=4)
    images, labels = random_images(6), [0, 1, 2, 3, 0, 1]
    kinds = [Kind(), Kind("bernstein", 2.0), Kind("hoeffding", 0.5), Kind("bernstein", 0.5)]
    for some_labels in (None, labels):
        settings = {"sigma": 0.5, "n0": 30, "n": 250, "labels": some_labels}
        together = certify_kinds(model, images, kinds, **settings)
        for kind, certificates in zip(kinds, together, strict=True):
            alone = certify(model, images, bound=kind.bound, beta=kind.beta, **settings)
            assert certificates == alone
    assert certify_kinds(model, images[:0], kinds, sigma=0.5) == [[], [], [], []]


def test_soft_outputs_are_rounded_down():
    """softmax(0, ½) is (395,890.2…, 652,685.7…) units of 2⁻²⁰: nearest would be one more."""
    [certificate] = certify_hoeffding(Constant([0.0, 0.5]), torch.zeros(1, *SHAPE), sigma=1.0, n=50)
    share = 1 / (1 + math.exp(-0.5)) / SOFT_UNIT
    assert share % 1 > 0.6
    assert certificate.estimation[1] == 50 * math.floor(share)
    assert certificate.squares[1] == 50 * math.floor(share) ** 2


class Lopsided(nn.Module):
    """Class 0 wins narrowly and often, class 1 rarely and by far: votes and softmax disagree."""

    def forward(self, x):
        bright = x.flatten(1).mean(dim=1) > 0.53
        return torch.stack([torch.zeros(len(x)), torch.where(bright, 20.0, -0.1)], dim=1)


def test_a_score_estimates_for_each_kind_the_images_that_this_kind_has_right():
    """And keeps nothing of what was drawn for another kind."""
    images = torch.tensor([0.5, 0.5, 0.2, 0.9])[:, None, None, None].expand(-1, *SHAPE)
    kinds = [Kind(), Kind("bernstein", 1.0), Kind("hoeffding", 1000.0), Kind("hoeffding", 1.0)]
    settings = {"sigma": 0.5, "n0": 200, "n": 300, "labels": [0, 1, 0, 0]}
    drawn: list[int] = []
    together = certify_kinds(Lopsided(), images, kinds, progress=drawn.append, **settings)
    assert [[c.drawn for c in certificates] for certificates in together] == [
        [300, 0, 300, 0],
        [0, 300, 300, 0],
        [300, 0, 300, 0],
        [0, 300, 300, 0],
    ]
    assert sum(drawn) == 4 * 200 + 3 * 300  # no kind wants the last image
    for kind, certificates in zip(kinds, together, strict=True):
        alone = certify(Lopsided(), images, bound=kind.bound, beta=kind.beta, **settings)
        assert certificates == alone
        for c in certificates:
            assert any(c.estimation) == (c.drawn > 0) and any(c.squares) <= (c.drawn > 0)


# refusal


def test_a_single_image_without_its_batch_dimension_is_refused():
    line = r"^inputs must be floats, unless they are uint8 images of the shape .* shape \(1, 4, 4\)"
    with pytest.raises(Mistake, match=line):
        certify(HalfSpace(2.0), torch.zeros(SHAPE, dtype=torch.uint8), sigma=1.0)


@pytest.mark.parametrize(
    ("images", "got"),
    [
        ([[0.0]], "a tensor or a NumPy array, got list"),
        (None, "a tensor or a NumPy array, got NoneType"),
        (torch.zeros(1, *SHAPE, dtype=torch.int64), r"uint8 or floats in \[0, 1\], got int64"),
        (np.zeros((1, *SHAPE), dtype=bool), r"uint8 or floats in \[0, 1\], got bool"),
        (np.full((1, *SHAPE), "black"), "uint8 or floats, got <U5"),
    ],
)
@pytest.mark.parametrize("ask", [certify, predict, partial(certify_at, radius=0.1)])
def test_what_is_no_image_is_refused(ask, images, got):
    with pytest.raises(Mistake, match=rf"^images must be {got}; convert them$"):
        ask(HalfSpace(2.0), images, sigma=1.0)


def test_labels_may_be_a_tensor_and_must_be_one_per_image():
    model, images = small_network(classes=4), random_images(3)
    listed = certify(model, images, sigma=0.5, n=50, labels=[0, 1, 2])
    assert certify(model, images, sigma=0.5, n=50, labels=torch.arange(3)) == listed
    for wrong in ([0], [], [0, 1, 2, 3]):
        with pytest.raises(Mistake, match=rf"^labels must be one per image, 3, got {len(wrong)}$"):
            certify(model, images, sigma=0.5, n=50, labels=wrong)


def test_each_kinds_own_settings_are_checked():
    with pytest.raises(Mistake, match=r"^beta must be > 0, got -1"):
        certify_kinds(
            Constant([0.0]), random_images(1), [Kind(), Kind("bernstein", -1.0)], sigma=0.5, n=50
        )
