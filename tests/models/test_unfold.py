"""Folded batch-norms: the same outputs in eval mode, and statistics of their own."""

import pytest
import torch
from torch import nn

from macer.models.unfold import folded_norms, unfold

IMAGES = torch.rand(150, 2, 6, 6, generator=torch.Generator().manual_seed(1))


def network(*, folded=True):
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3)]
    layers += [nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3)]
    made = nn.Sequential(*layers)
    for norm in (made[1], made[4], made[8]):
        nn.init.normal_(norm.bias)
        if not folded:
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 2)
    with torch.no_grad():
        made[3].weight[0] = 0  # a channel that is constant
    return made


def unfolded(made):
    norms = folded_norms(made)
    unfold(made, norms, IMAGES)
    return norms


def outputs(made, *, training):
    made.train(training)
    with torch.no_grad():
        return made(IMAGES)


def test_the_outputs_in_eval_mode_stay():
    made = network()
    before = outputs(made, training=False)
    assert unfolded(made) == [made[1], made[4], made[8]]
    torch.testing.assert_close(outputs(made, training=False), before, rtol=1e-4, atol=1e-5)


def test_the_outputs_in_training_become_those_in_eval_mode():
    before = network()
    assert (outputs(before, training=True) - outputs(before, training=False)).abs().max() > 0.5
    made = network()
    unfolded(made)
    expected = outputs(made, training=False)
    torch.testing.assert_close(outputs(made, training=True), expected, rtol=1e-2, atol=1e-2)


def test_the_statistics_are_those_of_the_inputs_over_all_images():
    made = network()
    unfolded(made)
    x = made[0](IMAGES).detach().transpose(0, 1).flatten(1)
    torch.testing.assert_close(made[1].running_mean, x.mean(1))
    torch.testing.assert_close(made[1].running_var, x.var(1, correction=0))


@pytest.mark.parametrize("training", [False, True])
def test_modes_and_hooks_are_as_before(training):
    made = network().train(training)
    unfolded(made)
    assert all(part.training == training for part in made.modules())
    assert not any(part._forward_pre_hooks for part in made.modules())


def test_batch_norms_with_statistics_are_none_of_them():
    assert folded_norms(network(folded=False)) == []


def test_parts_that_stay_are_none_of_them():
    made = network()
    assert folded_norms(made, keep=[made[4]]) == [made[1], made[8]]
