"""How many rows a network sees, and what its samples add up to."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from macer.certification.largest_radius import certify
from macer.models.modes import network_dtype
from macer.smoothing.copies import Chunks, NoisyCopies
from macer.smoothing.sampling import Sampler, network_rows
from macer.smoothing.streams import Purpose
from macer.smoothing.tally import SOFT_UNIT
from macer.system.errors import Mistake

GPU, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((1, 28, 28), 32_000), ((3, 32, 32), 8100), ((3, 64, 64), 2000), ((3, 224, 224), 1000),
     ((1, 8, 8), 32_000)],
)  # fmt: skip
def test_a_batch_has_fewer_images_the_larger_they_are(shape, rows):
    assert network_rows(GPU, None, shape) == rows
    assert network_rows(GPU, rows, shape) == rows  # as a journal's header has it


@pytest.mark.parametrize(("batch_size", "rows"), [(1, 100), (199, 100), (64_000, 64_000)])
def test_a_batch_is_whole_chunks_of_what_is_asked_for(batch_size, rows):
    assert network_rows(GPU, batch_size, (3, 224, 224)) == rows


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((1, 28, 28), 100), ((3, 32, 32), 100), ((3, 64, 64), 50), ((3, 224, 224), 5),
     ((1, 512, 512), 4), ((1, 512, 513), 2), ((3, 2000, 2000), 1)],
)  # fmt: skip
def test_a_batch_on_a_cpu_is_one_chunk_or_an_equal_part_of_one(shape, rows):
    assert network_rows(CPU, None, shape) == network_rows(CPU, 5000, shape) == rows


@pytest.mark.slow
def test_a_chunk_of_large_images_is_seen_in_parts_that_add_up():
    seen = []

    class Bright(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            level = x.mean((1, 2, 3))
            return torch.stack([level, 0.5 - 0 * level], dim=1)

    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    images[0] //= 2
    sampler = Sampler(model=Bright(), images=images, sigma=0.5, seed=3, indices=[4, 7])
    tally = sampler.draw(130, Purpose.ESTIMATION)
    assert {*seen} <= {5, 8}  # 8 in the probe
    # The same noise through the network all at once.
    copies = NoisyCopies(
        images, [4, 7], sigma=0.5, seed=3, purpose=Purpose.ESTIMATION, rows=400, dtype=torch.float32
    )
    slots, numbers = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    batch, _ = copies.draw(Chunks(slots, numbers, np.array([100, 30, 100, 30])))
    winners = Bright()(batch).argmax(dim=1).view(2, 200)[:, :130]
    assert tally.votes.tolist() == [[int((w == c).sum()) for c in (0, 1)] for w in winners]
    assert tally.votes.sum(dim=1).tolist() == [130, 130]


class Fixed(nn.Module):
    """The same logits whatever it sees."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def sampled(model, num, betas=(), **more):
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    sampler = Sampler(model=model, images=images, sigma=0.5, seed=0, betas=tuple(betas), **more)
    return sampler.draw(num, Purpose.ESTIMATION)


def small_sampler(**more):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    images = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return Sampler(model=model, images=images, sigma=0.5, seed=3, betas=(1.0, 4.0), **more)


def test_samples_in_parts_are_those_of_one_draw():
    sampler = small_sampler(indices=[4, 0, 9])
    whole = sampler.draw(750, Purpose.ESTIMATION)
    first = sampler.draw(300, Purpose.ESTIMATION)
    rest = sampler.draw(450, Purpose.ESTIMATION, after=300)
    for total, *parts in zip(whole, first, rest, strict=True):
        assert torch.equal(total, sum(parts))


def test_images_may_each_have_their_own_samples_in_one_pass():
    sampler = small_sampler(indices=[4, 0, 9])
    num, after = np.array([130, 400, 250]), np.array([300, 0, 1200])
    together = sampler.draw(num, Purpose.ESTIMATION, after=after)
    for i in range(3):
        alone = sampler.draw(int(num[i]), Purpose.ESTIMATION, after=int(after[i]))
        for totals, expected in zip(together, alone, strict=True):
            assert torch.equal(totals[i], expected[i])


@pytest.mark.parametrize("chosen", [[True, False, True], [False, True, False], [False] * 3])
def test_the_chosen_images_have_their_samples_and_the_others_zeros(chosen):
    drawn: list[int] = []
    sampler = small_sampler(indices=[4, 0, 9], progress=drawn.append)
    everyone = sampler.draw(250, Purpose.ESTIMATION)
    assert sum(drawn) == 3 * 250
    drawn.clear()
    few = sampler.draw(250, Purpose.ESTIMATION, only=torch.tensor(chosen))
    for all_totals, totals in zip(everyone, few, strict=True):
        for is_chosen, whole, part in zip(chosen, all_totals, totals, strict=True):
            assert torch.equal(part, whole if is_chosen else torch.zeros_like(whole))
    assert sum(drawn) == 250 * sum(chosen)


def test_samples_have_the_variance_asked_for():
    """A network that sees one pixel votes for it being above σ: probability Φ(−1)."""

    class OnePixel(nn.Module):
        def forward(self, x):
            return torch.stack([torch.full_like(x[:, 0, 0, 0], 0.3), x[:, 0, 0, 0]], dim=1)

    sampler = Sampler(model=OnePixel(), images=torch.zeros(1, 1, 4, 4), sigma=0.3, seed=0)
    tally = sampler.draw(100_000, Purpose.ESTIMATION)
    assert tally.votes[0, 1].item() == pytest.approx(100_000 * norm.sf(1), abs=5 * 365)


@pytest.mark.parametrize("logit", [0.3, -0.3, 3.0, 8.0, -8.0])
@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_soft_outputs_are_rounded_down_whatever_they_are(logit, beta):
    """Rounded to nearest, a sum may be above the exact one, and with it a bound."""
    tally = sampled(Fixed(0.0, logit), 130, [beta])
    z = torch.tensor([0.0, beta * torch.tensor(logit).double()]).double().softmax(dim=0)
    levels = (z / SOFT_UNIT).floor().long()
    assert tally.first[0, 0].tolist() == (130 * levels).tolist()
    assert tally.second[0, 0].tolist() == (130 * levels**2).tolist()
    assert (tally.first[1, 0] * SOFT_UNIT <= 130 * z).all()


def test_soft_moments_are_those_of_each_beta_in_its_place():
    betas = [0.5, 4.0, 1.0]
    together = sampled(Fixed(0.0, 1.0, -0.5), 100, betas)
    for place, beta in enumerate(betas):
        alone = sampled(Fixed(0.0, 1.0, -0.5), 100, [beta])
        assert torch.equal(together.first[:, place], alone.first[:, 0])
        assert torch.equal(together.second[:, place], alone.second[:, 0])


def test_samples_whose_noise_is_undecided_do_not_count(monkeypatch):
    """Neither as votes nor in the soft moments, and no other sample takes their place."""
    draw = NoisyCopies.draw

    def partly(self, chunks):
        batch, decided = draw(self, chunks)
        return batch, decided & (torch.arange(len(decided)) % 100 >= 30)

    monkeypatch.setattr(NoisyCopies, "draw", partly)
    tally = sampled(Fixed(0.0, 1.0), 230, [1.0])
    assert tally.votes.tolist() == [[0, 70 + 70]] * 2
    whole = int(torch.tensor([0.0, 1.0]).double().softmax(0)[1] / SOFT_UNIT)
    assert tally.first[:, 0, 1].tolist() == [140 * whole] * 2


def test_progress_is_told_of_the_samples_asked_for():
    drawn: list[int] = []
    sampled(Fixed(0.0, 1.0), 130, progress=drawn.append)
    assert sum(drawn) == 2 * 130


class Hungry(torch.nn.Module):
    """Has too little memory."""

    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.06 GiB.")


def test_a_batch_that_does_not_fit_the_memory_is_a_clear_mistake():
    with pytest.raises(Mistake, match=r"^batch_size must fit the GPU's memory, got 100 rows; "):
        certify(Hungry(), torch.zeros(1, 1, 2, 2), sigma=0.5, n=200)


def test_images_have_the_type_of_the_networks_weights():
    assert network_dtype(nn.Linear(2, 2).half()) == torch.float16
    assert network_dtype(nn.Linear(2, 2).double()) == torch.float64
    assert network_dtype(nn.Flatten()) == torch.float32
    seen = set()

    class Watching(nn.Linear):
        def forward(self, x):
            seen.add(x.dtype)
            return super().forward(x.flatten(1))

    sampled(Watching(16, 2).double(), 50)
    assert seen == {torch.float64}
