import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from macer.smoothing.streams import Purpose, fill_normal, key, stream


def normals(shape, *, seed=0, purpose=Purpose.ESTIMATION, image=0, chunk=0):
    return fill_normal(torch.empty(shape), seed=seed, purpose=purpose, image=image, chunk=chunk)


def test_a_stream_is_a_function_of_its_name():
    assert torch.equal(normals(100, image=3, chunk=2), normals(100, image=3, chunk=2))


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"purpose": Purpose.SELECTION}, {"image": 1}, {"chunk": 1}]
)
def test_streams_with_different_names_are_uncorrelated(other):
    a, b = normals(100_000), normals(100_000, **other)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(100_000)


def test_a_generator_without_counters_has_a_seed_for_each_name():
    """Each part of the name in its own place, and none that a signed integer cannot hold."""
    names = [(seed, image, chunk) for seed in range(4) for image in range(8) for chunk in range(8)]
    seeds = {
        key(seed, purpose, image, chunk)
        for seed, image, chunk in names
        for purpose in (Purpose.TRAINING, Purpose.ATTACK)
    }
    assert len(seeds) == 2 * len(names)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert key(1, Purpose.TRAINING, 2, 3) == 6240644379870098804


def test_a_shorter_request_is_a_prefix_of_a_longer_one():
    assert torch.equal(normals(1000)[:100], normals(100))


def test_image_numbers_may_use_64_bits():
    assert not torch.equal(normals(10, image=2**63), normals(10, image=2**63 + 1))


def test_noise_is_standard_normal():
    assert kstest(normals(1_000_000).double().numpy(), norm.cdf).pvalue > 1e-3


@pytest.mark.medium
def test_the_tails_are_as_heavy_as_the_normal_ones():
    x = normals(20_000_000)
    for level in (3.0, 4.0, 5.0):
        expected = 2 * norm.sf(level) * len(x)
        assert abs((x.abs() > level).sum().item() - expected) < 5 * np.sqrt(expected)


def test_known_answers():
    """NumPy keeps Philox and its ziggurat stable; a change would change every certificate."""
    assert stream(7, Purpose.ESTIMATION, 5, 3).bit_generator.random_raw(2).tolist() == [
        14045922333479190230,
        3440910515472528961,
    ]
    assert normals(3, seed=7, image=5, chunk=3).tolist() == [
        1.3924386501312256,
        -2.0807509422302246,
        0.0803789272904396,
    ]
