import numpy as np
import pytest
import torch
from torch import nn

from macer.smoothing.streams import Purpose, fill_normal
from macer.training.votes import ROWS, count_votes, sampled_logits

CPU = torch.device("cpu")


class Bright(nn.Module):
    """Class 1 where the mean pixel is above ½, class 0 elsewhere, class 2 never."""

    def forward(self, x):
        margin = x.mean((1, 2, 3)) - 0.5
        return torch.stack([-margin, margin, torch.full_like(margin, -9.0)], dim=1)


def grey_images(count, channels=1):
    levels = np.random.default_rng(0).integers(110, 146, size=(count, 1, 1, 1))
    return torch.from_numpy(np.broadcast_to(levels, (count, channels, 4, 4)).astype(np.uint8))


def counted(model, images, **changes):
    settings = {"samples": 20, "sigma": 0.5, "seed": 3, "purpose": Purpose.WEIGHTS, "chunk": 5}
    return count_votes(sampled_logits(model, images, **settings | changes, device=CPU))


# reference


@pytest.mark.parametrize("samples", [1, 20, ROWS + 1])
def test_votes_are_those_counted_one_by_one(samples):
    images = grey_images(3 if samples > ROWS else 130, channels=2)
    at_once = max(1, ROWS // samples)
    expected = []
    for start in range(0, len(images), at_once):
        some = images[start : start + at_once]
        eta = torch.empty(len(some), samples, 4, 4, 2)
        fill_normal(eta, seed=3, purpose=Purpose.WEIGHTS, image=start, chunk=5)
        for image, noise in zip(some, eta, strict=True):
            means = [float(image[0, 0, 0]) / 255 + 0.5 * float(e.mean()) for e in noise]
            ones = sum(mean > 0.5 for mean in means)
            expected.append([samples - ones, ones, 0])
    votes = counted(Bright(), images, samples=samples)
    assert votes.dtype == torch.int64
    assert votes.tolist() == expected
    assert 0 < votes[:, 0].sum() < votes.sum()


# law


@pytest.mark.parametrize(("values", "most"), [(32 * 7, 7), (1, 1), (1 << 25, ROWS)])
def test_large_images_are_seen_in_parts_and_have_the_same_votes(values, most, monkeypatch):
    seen = []

    class Watched(Bright):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    images = grey_images(60, channels=2)
    votes = counted(Bright(), images)
    monkeypatch.setattr("macer.training.votes.VALUES", values)
    assert torch.equal(counted(Watched(), images), votes)
    assert max(seen) == min(most, ROWS // 20 * 20) and sum(seen) == 60 * 20


@pytest.mark.parametrize(
    "changes", [{"seed": 4}, {"purpose": Purpose.DROPPING}, {"chunk": 6}, {"sigma": 0.2}]
)
def test_another_stream_or_sigma_gives_other_votes_and_the_same_the_same(changes):
    images = grey_images(60)
    votes = counted(Bright(), images)
    assert torch.equal(counted(Bright(), images), votes)
    assert not torch.equal(counted(Bright(), images, **changes), votes)


def test_the_network_votes_in_eval_mode_and_is_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.9), Bright()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = grey_images(60)
    votes = counted(model, images)
    assert all(part.training for part in model.modules())
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert torch.equal(votes, counted(model.eval(), images))
