import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macer.attacks.geometry import in_ball, norm, to_grid, unit

SHAPE = (1, 8, 8)

# law


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_vectors_are_the_same_singly_and_in_groups(layout):
    """The noise of images has one dimension more than the images."""
    groups = torch.randn(6, 3, 8, 8).contiguous(memory_format=layout).unflatten(0, (2, 3))
    for function in (norm, unit, lambda v: in_ball(v, 1.5)):
        single = torch.stack([function(group) for group in groups])
        assert torch.equal(function(groups), single)


@pytest.mark.medium
@given(
    st.integers(0, 2**32), st.floats(1e-3, 300), st.sampled_from([0.0, 0.7, 0.99])
)  # scale in levels, share of zeros
@settings(max_examples=100, deadline=None)
def test_the_grid_is_never_farther_than_what_is_rounded_to_it(seed, levels, zeros):
    random = np.random.default_rng(seed)
    x = torch.from_numpy(random.integers(0, 256, (3, *SHAPE)).astype(np.uint8))
    delta = torch.from_numpy(
        levels / 255 * random.standard_normal((3, *SHAPE)) * (random.random((3, *SHAPE)) > zeros)
    )
    delta = (x / 255.0 + delta).clamp(0, 1) - x / 255.0
    found = to_grid(x, delta)
    assert found.dtype == torch.uint8
    squares = ((found.int() - x.int()) ** 2).flatten(1).sum(dim=1)
    assert (squares <= (255 * delta).flatten(1).norm(dim=1) ** 2).all()


def test_the_grid_loses_little_of_a_perturbation():
    random = np.random.default_rng(0)
    x = torch.full((50, 1, 28, 28), 128, dtype=torch.uint8)
    direction = torch.from_numpy(random.standard_normal(x.shape))
    direction /= direction.flatten(1).norm(dim=1)[:, None, None, None]
    for length, least in ((1.0, 0.999), (0.25, 0.99), (0.1, 0.9), (0.02, 0.4)):
        moved = (to_grid(x, length * direction).double() - 128) / 255
        along = (moved * direction).flatten(1).sum(dim=1)
        assert (along > least * length).all(), length


def test_a_perturbation_on_the_grid_stays_and_none_stays_none():
    x = torch.full((2, *SHAPE), 100, dtype=torch.uint8)
    delta = torch.zeros(2, *SHAPE, dtype=torch.float64)
    delta[0, 0, :3, :3] = 7 / 255 * (1 + 1e-12)
    found = to_grid(x, delta)
    assert torch.equal(found.double(), x + (255 * delta).round())
