"""Which networks are refused, and what one image at a time makes of them."""

import math
import random
from functools import partial

import pytest
import torch
from scipy.stats import binom
from torch import nn

from macer.certification.fixed_radius import certify_at
from macer.certification.largest_radius import certify, predict
from macer.certification.smooth import Smooth
from macer.kernels.agreement import FEW
from macer.smoothing.copies import CHUNK
from macer.smoothing.rows import EXCHANGES, check_rows
from macer.system.errors import Mistake

IMAGES = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
LINE = "the model must give an image the same logits in any company and at any time"
ALONE = "the model must give an image the same logits at every call"


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


class BatchStatistics(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)


class AlwaysDropout(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)


class Counting(nn.Module):
    """Another function at each call."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class TrainingNorm(nn.BatchNorm2d):
    """A batch-norm that eval mode does not reach."""

    def train(self, mode=True):
        return super().train(True)


class FixedDropout(nn.Module):
    """The same noise at each call, another one for each row."""

    def forward(self, x):
        return x + torch.rand(x.shape, generator=torch.Generator().manual_seed(0))


# Half-spaces whose truth is known, one image at a time.


class HalfSpace(nn.Module):
    """Class 1 where w·x > 2, with ‖w‖ = 1; the rows of a batch have something to do with it."""

    def forward(self, x):
        margin = self.among(x.flatten(1).sum(dim=1) / 4 - 2, x)
        return torch.stack([-margin, margin], dim=1)

    def among(self, margin, x):
        return margin


class OddRowsFollow(HalfSpace):
    """Odd rows vote as row 0."""

    def among(self, margin, x):
        followed = margin.clone()
        followed[1::2] = margin[0]
        return followed


class OddRowsFollowVotes(OddRowsFollow):
    """The same of votes, which mostly are equal anyway."""

    def among(self, margin, x):
        return super().among(margin, x).sign()


class DynamicRange(HalfSpace):
    """Quantised to four bits in a range over the batch."""

    def among(self, margin, x):
        unit = margin.abs().max() / 7
        return (margin / unit).round() * unit


class StatisticsOutside(HalfSpace):
    """Batch statistics that begin outside [0, 1]."""

    def among(self, margin, x):
        outside = ((x < 0) | (x > 1)).flatten(1).any(dim=1)
        return torch.where(outside, (margin + margin.mean()) / 2, margin)


class RandomOutside(HalfSpace):
    """Randomness that begins outside [0, 1]."""

    def among(self, margin, x):
        outside = ((x < 0) | (x > 1)).flatten(1).any(dim=1)
        return torch.where(outside, margin + torch.rand_like(margin), margin)


MIXING = [OddRowsFollow, OddRowsFollowVotes, DynamicRange, StatisticsOutside]


def at_distance(distance, images=1):
    return torch.full((images, 1, 4, 4), (2 + distance) / 4)


def by_smooth(model, images, *, sigma, n):
    return [Smooth(model, 2, sigma).certify(image, 100, n, 0.001) for image in images]


ASK = [certify, predict, partial(certify_at, radius=0.05), by_smooth]


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize("model", [*MIXING, RandomOutside])
def test_a_model_whose_rows_influence_one_another_is_refused(ask, model):
    for distance in (0.1, -0.3):
        with pytest.raises(Mistake, match=rf"^{LINE}, got others; .* add --row-by-row "):
            ask(model(), at_distance(distance), sigma=0.25, n=100)


@pytest.mark.slow
@pytest.mark.parametrize("model", MIXING)
def test_row_by_row_no_more_than_alpha_of_a_half_spaces_certificates_are_false(model):
    images, alpha, distance = 100, 0.05, 0.1
    certificates = certify(
        model(),
        at_distance(distance, images),
        sigma=0.25,
        n0=10,
        n=100,
        alpha=alpha,
        row_by_row=True,
    )
    assert sum(c.label == 1 for c in certificates) > images / 2
    false = sum(c.radius > distance or c.label == 0 for c in certificates)
    assert false <= binom.ppf(0.9999, images, alpha)


def test_unseen_the_odd_rows_would_be_certified_falsely_far_more_often(monkeypatch):
    """What the tests above would catch."""
    monkeypatch.setattr("macer.smoothing.sampling.check_rows", lambda *a, **k: 2)
    images = at_distance(0.1, 200)
    certificates = certify(OddRowsFollow(), images, sigma=0.25, n0=10, n=100, alpha=0.05)
    assert sum(c.radius > 0.1 or c.label == 0 for c in certificates) > 50


@pytest.mark.parametrize("ask", [certify, predict, partial(certify_at, radius=0.05)])
def test_row_by_row_is_the_same_classifier_where_rows_are_independent(ask):
    images = at_distance(0.2, 3)
    settings = {"sigma": 0.25, "n": 200}
    assert ask(HalfSpace(), images, **settings) == ask(
        HalfSpace(), images, row_by_row=True, **settings
    )


def test_row_by_row_the_network_sees_one_row():
    seen = set()

    class Watching(HalfSpace):
        def among(self, margin, x):
            seen.add(len(x))
            return margin

    for ask in (certify, predict, partial(certify_at, radius=0.05)):
        ask(Watching(), at_distance(0.1), sigma=0.25, n=130, row_by_row=True)
    Smooth(Watching(), 2, 0.25, row_by_row=True).predict(at_distance(0.1)[0], 130, 0.001)
    assert seen == {1, 2, FEW}  # a few before it is traced


class Trail(nn.Module):
    """What it saw in the call before matters."""

    before = 0.0

    def forward(self, x):
        answer = x + self.before
        self.before = x[0, 0, 0, 0].clone()
        return answer


@pytest.mark.parametrize("layer", [AlwaysDropout, Counting, Trail])
def test_row_by_row_randomness_and_state_between_calls_are_refused(layer):
    for ask in (certify, predict):
        with pytest.raises(Mistake, match=ALONE):
            ask(network(layer()), IMAGES, sigma=0.5, n=100, row_by_row=True)
    with pytest.raises(Mistake, match=ALONE):
        certify(RandomOutside(), at_distance(0.1), sigma=0.25, n=100, row_by_row=True)


def test_a_state_that_returns_after_two_calls_is_seen():
    class Alternating(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls % 2

    for row_by_row in (False, True):
        with pytest.raises(Mistake, match="the model must give an image the same logits"):
            certify(network(Alternating()), IMAGES, sigma=0.5, n=100, row_by_row=row_by_row)


def test_the_first_batch_is_shown_again_after_all_others():
    class Tiring(nn.Module):
        """The same function in its first calls: as many as there are batches, less one."""

        calls = 0

        def forward(self, x):
            self.calls += 1
            return x + (self.calls >= EXCHANGES + 4)

    with pytest.raises(Mistake, match=LINE):
        certify(network(Tiring()), IMAGES, sigma=0.5, n=100)


@pytest.mark.parametrize(
    "layer", [BatchStatistics, AlwaysDropout, Counting, lambda: TrainingNorm(1), FixedDropout]
)
@pytest.mark.parametrize("ask", [certify, predict])
def test_a_model_whose_rows_mix_or_vary_is_refused(ask, layer):
    with pytest.raises(Mistake, match=LINE):
        ask(network(layer()), IMAGES, sigma=0.5, n=100)


@pytest.mark.parametrize("heeded", [1, 50, 99])
@pytest.mark.parametrize("row", [0, 2, 98])
def test_one_row_that_heeds_one_other_is_seen(row, heeded):
    class Heeding(nn.Module):
        def forward(self, x):
            y = x.clone()
            y[row] += y[heeded]
            return y

    with pytest.raises(Mistake, match=LINE):
        certify(network(Heeding()), IMAGES, sigma=0.5, n=100)


def test_a_nan_is_not_taken_for_another_number():
    class Poisoned(nn.Module):
        """0 in the first class, and NaN in the rows of a batch with a bright pixel."""

        def forward(self, x):
            logits = x.flatten(1)[:, :3] * 0
            return logits.masked_fill(x.mean() > 0.5, math.nan)

    with pytest.raises(Mistake, match=LINE):
        certify(Poisoned(), IMAGES, sigma=0.5, n=100)

    class Broken(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 3), random.choice([math.nan]))

    assert certify(Broken(), IMAGES, sigma=0.5, n=100)[0].label == -1


@pytest.mark.parametrize(
    "layer", [nn.Identity, nn.Dropout, lambda: nn.BatchNorm2d(1), lambda: nn.InstanceNorm2d(1)]
)
@pytest.mark.parametrize("row_by_row", [False, True])
def test_a_model_that_is_a_function_of_its_image_passes(layer, row_by_row):
    model = network(layer()).train()  # certification evaluates in eval mode
    assert len(certify(model, IMAGES, sigma=0.5, n=100, row_by_row=row_by_row)) == 1


def test_each_model_is_tried_once_for_a_shape_and_a_noise():
    calls = []

    class Watching(nn.Module):
        def forward(self, x):
            calls.append(tuple(x.shape))
            return x.flatten(1)

    model = Watching()
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    settings = {"rows": CHUNK, "sigma": 0.5, "dtype": torch.float32}
    once = EXCHANGES + 4
    for others, changes in [
        (images, {}), (images, {}), (images[:1], {}), (images[..., :2], {}), (images / 255, {}),
        (images, {"sigma": 0.25}), (images, {"rows": 1}), (images, {"rows": 5}),
    ]:  # fmt: skip
        check_rows(model, others, **settings | changes)
    usual, narrow = [(CHUNK, 1, 4, 4)] * once, [(CHUNK, 1, 4, 2)] * once
    alone, parts = [(1, 1, 4, 4)] * once * FEW, [(5, 1, 4, 4)] * once * 2
    assert calls == [*usual, *narrow, *usual, *usual, *alone, *parts]


class Changing(nn.Module):
    """A network that mixes rows, or is random, once it is told to; and that counts its calls."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 3)
        self.told, self.notes = None, {"calls": 0}
        self.notes["own"] = [self.notes]  # a container may hold itself

    def forward(self, x):
        self.notes["calls"] += 1
        logits = self.fc(x.flatten(1))
        if self.told == "mix":
            return logits - logits.mean(dim=0)
        return nn.functional.dropout(logits, 0.5) if self.told == "vary" else logits


@pytest.mark.parametrize("told", ["mix", "vary"])
def test_a_model_that_passed_is_tried_again_after_a_change(told):
    torch.manual_seed(0)
    model, images = Changing(), torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    assert len(certify(model, images, sigma=0.5, n=100)) == 1
    model.told = told
    with pytest.raises(Mistake, match="the same logits in any company and at any time"):
        certify(model, images, sigma=0.5, n=100)
    model.told, model.fc = None, nn.Linear(16, 7)
    [certificate] = certify(model, images, sigma=0.5, n=100)
    assert len(certificate.estimation) == 7


def test_rows_are_not_refused_for_rounding_in_another_place():
    class Rounding(nn.Module):
        """The last rows are added up in another order."""

        def forward(self, x):
            y = x.flatten(1).cumsum(dim=1)[:, -3:].clone()
            y[90:] = x[90:].flatten(1).flip(1).cumsum(dim=1)[:, -3:]
            y[90:, :2] = y[:90].new_tensor([0.0, 1.0])
            y[:90, :2] = y[:90].new_tensor([0.0, 1.0])
            return y

    assert len(certify(Rounding(), IMAGES, sigma=0.5, n=100)) == 1


# refusal


class Answering(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda x: {"logits": x.flatten(1)}, "dict"),
        (lambda x: x, r"the shape \(100, 1, 4, 4\) for 100 images"),
        (lambda x: x.flatten(1)[:7], r"the shape \(7, 16\) for 100 images"),
        (lambda x: x.flatten(1)[:, :1], r"the shape \(100, 1\) for 100 images"),
        (lambda x: x.flatten(1).long(), "int64"),
    ],
)
@pytest.mark.parametrize("ask", [certify, predict, partial(certify_at, radius=0.05)])
def test_a_model_that_does_not_return_logits_is_refused(ask, answer, got):
    line = rf"^the model must return logits, floats of the shape .*, got {got}; "
    with pytest.raises(Mistake, match=line):
        ask(Answering(answer), IMAGES, sigma=0.5, n=100)


@pytest.mark.parametrize("ask", ASK)
def test_what_cannot_be_called_is_refused(ask):
    line = r"^the model must be an nn.Module or a callable from a batch to logits .*, got {}$"
    for model, name in (("resnet", "str"), (nn.Flatten, "the class Flatten"), (None, "NoneType")):
        with pytest.raises(Mistake, match=line.format(name)):
            ask(model, IMAGES, sigma=0.5, n=100)
