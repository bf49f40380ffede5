import numpy as np
import pytest
import torch
from reference import sun_weight
from tiny_models import tiny_recipe
from torch import nn

from macer.smoothing.streams import Purpose, stream
from macer.system.errors import Mistake
from macer.training.epochs import (
    WEIGHT_SAMPLES,
    epoch_order,
    updated_weights,
    weights_are_due,
    weights_of_votes,
)

RECIPE = tiny_recipe(epochs=9, drop_epoch=2, reweight_every=3, drop_below=0.5, sigma=0.5)


class Bright(nn.Module):
    """Class 1 where the mean pixel is above ½, class 0 elsewhere, class 2 never."""

    def forward(self, x):
        margin = x.mean((1, 2, 3)) - 0.5
        return torch.stack([-margin, margin, torch.full_like(margin, -9.0)], dim=1)


def grey_images(*levels):
    """Images of 4×4 equal pixels: the noisy mean of one is N(level, 1/8²) at σ = 0.5."""
    pixels = np.round(255 * np.array(levels)).astype(np.uint8)
    return torch.from_numpy(pixels[:, None, None, None].repeat(4, axis=2).repeat(4, axis=3))


def weights_at(epoch, weights, levels, labels, **changes):
    recipe = tiny_recipe(**vars(RECIPE) | changes)
    return updated_weights(
        recipe, epoch, weights, Bright(), grey_images(*levels), torch.tensor(labels)
    )


def ones(count):
    return torch.ones(count, dtype=torch.float64)


# reference


@pytest.mark.parametrize("sigma", [0.25, 1.0])
@pytest.mark.parametrize("n", [16, 100])
def test_weights_are_the_radii_of_the_reference(n, sigma):
    right = np.arange(n + 1)
    expected = [sigma * sun_weight(count / n, n) for count in right]
    np.testing.assert_allclose(weights_of_votes(right, n, sigma=sigma), expected, rtol=1e-9)


# law


def test_weights_are_positive_equal_below_three_quarters_and_ascending_above():
    weights = weights_of_votes(np.arange(WEIGHT_SAMPLES + 1), WEIGHT_SAMPLES, sigma=0.5)
    assert (weights > 0).all()
    assert len(set(weights[:13])) == 1
    assert (np.diff(weights[12:]) > 0).all()


def test_weights_are_due_at_the_drop_and_every_so_many_epochs_after_it():
    assert [epoch for epoch in range(9) if weights_are_due(RECIPE, epoch)] == [2, 5, 8]
    never = tiny_recipe(drop_epoch=0, reweight_every=1)
    assert not any(weights_are_due(never, epoch) for epoch in range(9))


def test_before_the_drop_an_epoch_is_a_permutation_whatever_the_weights():
    weights = torch.arange(50, dtype=torch.float64)
    for recipe, epoch in ((RECIPE, 1), (tiny_recipe(), 7)):
        expected = stream(0, Purpose.ORDER, epoch).permutation(50)
        assert np.array_equal(epoch_order(recipe, epoch, weights), expected)


def test_from_the_drop_on_images_are_drawn_as_often_as_their_weights_say():
    weights = torch.tensor([0.0, 1.0, 3.0] * 2000, dtype=torch.float64)
    order = epoch_order(RECIPE, 2, weights)
    assert len(order) == len(weights)
    counts = np.bincount(order % 3, minlength=3)
    assert counts[0] == 0
    assert counts[1] == pytest.approx(1500, abs=5 * np.sqrt(6000 * 0.25 * 0.75))
    assert not np.array_equal(order, epoch_order(RECIPE, 3, weights))


def test_images_that_noise_misleads_are_dropped_at_the_drop_and_never_come_back():
    levels, labels = (1.0, 0.45, 0.0, 0.55, 0.0), [1, 1, 1, 1, 0]
    weights = weights_at(2, ones(5), levels, labels)
    assert (weights > 0).tolist() == [True, False, False, True, True]
    assert weights[0] == weights[4] > weights[3]
    later = weights_at(5, weights, (1.0,) * 5, [1] * 5)  # all easy by now
    assert (later > 0).tolist() == [True, False, False, True, True]
    assert later[0] == later[3] == later[4]


def test_later_an_image_that_has_become_hard_keeps_the_least_weight():
    weights = weights_at(5, ones(2), (1.0, 0.0), [1, 1])
    assert weights.tolist() == weights_of_votes(np.array([16, 0]), 16, sigma=0.5).tolist()


def test_each_epoch_draws_its_weights_from_other_noise():
    levels, labels = (0.62,) * 100, [1] * 100
    first, second = (weights_at(epoch, ones(100), levels, labels) for epoch in (5, 8))
    assert not torch.equal(first, second)
    assert torch.equal(first, weights_at(5, ones(100), levels, labels))


def test_each_seed_draws_its_weights_from_other_noise():
    levels, labels = [0.55 + 0.01 * i for i in range(20)], [1] * 20
    weights = [weights_at(5, ones(20), levels, labels, seed=seed).tolist() for seed in (0, 1, 1)]
    assert weights[0] != weights[1] == weights[2]


def test_an_image_at_the_threshold_stays():
    weights = weights_at(2, ones(2), (1.0, 0.0), [1, 1], drop_below=1.0)
    assert (weights > 0).tolist() == [True, False]
    weights = weights_at(2, ones(2), (1.0, 0.0), [1, 1], drop_below=0.0)
    assert (weights > 0).all()


# refusal


def test_dropping_all_images_is_refused():
    with pytest.raises(Mistake) as refusal:
        weights_at(2, ones(2), (0.0, 0.0), [1, 1], drop_below=0.4)
    assert str(refusal.value) == (
        "drop_below must leave images to train on, got 0.4: none is so accurate under noise at "
        "epoch 2; lower drop_below or raise drop_epoch"
    )
