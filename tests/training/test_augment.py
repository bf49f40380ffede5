import numpy as np
import torch
from data_files import some_split

from macer.training.augment import augment

# reference


def test_augment_equals_numpy_one_image_at_a_time():
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (20, 3, 6, 5), np.uint8)
    offsets, flips = draw.integers(0, 5, (20, 2)), draw.random(20) < 0.5
    expected = []
    for image, (y, x), flip in zip(images, offsets, flips, strict=True):
        crop = np.pad(image, ((0, 0), (2, 2), (2, 2)))[:, y : y + 6, x : x + 5]
        expected.append(crop[:, :, ::-1] if flip else crop)
    found = augment(*map(torch.from_numpy, (images, offsets, flips)), padding=2)
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    assert np.array_equal(found.numpy(), np.stack(expected))


# law


def test_augment_at_the_centre_without_flip_is_the_identity():
    images = torch.from_numpy(some_split().images)
    centre = torch.full((len(images), 2), 4)
    assert torch.equal(augment(images, centre, torch.zeros(7, dtype=torch.bool), padding=4), images)


def test_flipping_twice_is_the_identity():
    images, every = torch.from_numpy(some_split().images), torch.ones(7, dtype=torch.bool)
    centre = torch.zeros(7, 2, dtype=torch.int64)
    twice = augment(augment(images, centre, every, padding=0), centre, every, padding=0)
    assert torch.equal(twice, images)


def test_augment_never_waits_for_its_data():
    images = torch.empty(7, 3, 32, 32, dtype=torch.uint8, device="meta")  # has a shape, no data
    offsets = torch.empty(7, 2, dtype=torch.int64, device="meta")
    flips = torch.empty(7, dtype=torch.bool, device="meta")
    assert augment(images, offsets, flips, padding=4).shape == images.shape
