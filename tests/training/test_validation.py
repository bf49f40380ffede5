import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from tiny_models import tiny_recipe, tiny_split
from torch import nn

from macer.data.sets import Split
from macer.smoothing.streams import Purpose, fill_normal
from macer.system.errors import Mistake
from macer.training.validation import Validation, validate
from macer.training.votes import ROWS


class Constant(nn.Module):
    def forward(self, x):
        return torch.tensor([0.0, 1.0, 0.0]).expand(len(x), -1)


class Bright(nn.Module):
    """Class 1 where the mean pixel is above ½, class 0 elsewhere, class 2 never."""

    def forward(self, x):
        margin = x.mean((1, 2, 3)) - 0.5
        return torch.stack([-margin, margin, torch.full_like(margin, -9.0)], dim=1)


def validated(model, split, samples=32, **changes):
    recipe = tiny_recipe(**changes)
    return validate(model, split, recipe, samples=samples, device=torch.device("cpu"))


# reference


@pytest.mark.parametrize("samples", [32, 101])
def test_accuracy_and_radius_are_those_of_votes_counted_one_by_one(samples):
    draw = np.random.default_rng(0)
    images = np.full((40, 1, 8, 8), 0, np.uint8)
    images[:] = draw.integers(100, 156, size=(40, 1, 1, 1))
    split = Split(images, draw.integers(0, 2, size=40))
    etas = []  # a stream a batch, its images in order
    at_once = ROWS // samples
    for start in range(0, 40, at_once):
        eta = torch.empty(min(at_once, 40 - start), samples, 8, 8, 1)
        etas += fill_normal(eta, seed=7, purpose=Purpose.VALIDATION, image=start, chunk=0)
    right, radii = [], []
    for eta, image, y in zip(etas, images, split.labels, strict=True):
        ones = int((image.mean() / 255 + 0.5 * eta.mean((1, 2, 3)) > 0.5).sum())
        votes = [samples - ones, ones]
        right.append(int(np.argmax(votes)) == y)
        p = min(max(votes[y] / samples, 0.5), 1 - 0.5 / samples)
        radii.append(0.5 * norm.ppf(p) * right[-1])
    found = validated(Bright(), split, samples, sigma=0.5, seed=7)
    assert 0 < np.mean(right) < 1
    assert found["validation_accuracy"] == pytest.approx(np.mean(right))
    assert found["validation_radius"] == pytest.approx(np.mean(radii))


# law


def test_validation_repeats_itself_and_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.BatchNorm2d(1), Bright()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = validated(model, tiny_split())
    assert validated(model, tiny_split()) == first
    assert all(part.training for part in model.modules())
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


# known value


@pytest.mark.parametrize("samples", [32, 101])
def test_a_constant_classifier_is_right_on_its_class_with_the_largest_radius(samples):
    split = tiny_split()
    share = float((split.labels == 1).mean())
    found = validated(Constant(), split, samples, sigma=0.25)
    assert found["validation_accuracy"] == pytest.approx(share)
    largest = 0.25 * norm.ppf(1 - 0.5 / samples)
    assert math.isfinite(largest)
    assert found["validation_radius"] == pytest.approx(share * largest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"every": 1.5}, "every must be a whole number, got 1.5"),
        ({"samples": 0}, "samples must be from 1 to 1024, got 0"),
        ({"samples": 1025}, "samples must be from 1 to 1024, got 1025"),
        ({"samples": None}, "samples must be a whole number, got None"),
    ],
)
def test_a_validation_out_of_range_is_refused(arguments, message):
    with pytest.raises(Mistake) as refusal:
        Validation(**arguments)
    assert str(refusal.value) == message
