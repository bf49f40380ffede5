"""How many rows a network sees, in which thread; what it makes of them: test_certification.py."""

import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from macer.certification.largest_radius import certify
from macer.errors import Mistake
from macer.models.modes import network_dtype
from macer.smoothing.copies import Chunks, NoisyCopies
from macer.smoothing.sampling import (
    _in_threads,
    _one_a_thread,
    network_rows,
    sample_under_noise,
)
from macer.smoothing.streams import Purpose
from macer.smoothing.tally import SOFT_UNIT
from macer.system.signals import Stopped, stopping_at_once

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


def test_a_chunk_of_large_images_is_seen_in_parts_that_add_up():
    seen = []

    class Bright(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            level = x.mean((1, 2, 3))
            return torch.stack([level, 0.5 - 0 * level], dim=1)

    images = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    images[0] //= 2
    found = sample_under_noise(
        Bright(), images, 130, sigma=0.5, seed=3, purpose=Purpose.ESTIMATION, indices=[4, 7]
    )
    assert {*seen} <= {5, 8}  # 8 in the probe
    # The same noise through the network all at once.
    copies = NoisyCopies(
        images, [4, 7], sigma=0.5, seed=3, purpose=Purpose.ESTIMATION, rows=400, dtype=torch.float32
    )
    slots, numbers = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    batch, _ = copies.draw(Chunks(slots, numbers, np.array([100, 30, 100, 30])))
    winners = Bright()(batch).argmax(dim=1).view(2, 200)[:, :130]
    assert found.votes.tolist() == [[int((w == c).sum()) for c in (0, 1)] for w in winners]
    assert found.votes.sum(dim=1).tolist() == [130, 130]


class Fixed(nn.Module):
    """The same logits whatever it sees."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def sampled(model, num, betas=(), **changes):
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    settings = {"sigma": 0.5, "seed": 0, "purpose": Purpose.ESTIMATION, "indices": [0, 1]}
    return sample_under_noise(model, images, num, betas=betas, **settings | changes)


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
    told: list[int] = []
    sampled(Fixed(0.0, 1.0), 130, progress=told.append)
    assert sum(told) == 2 * 130


class Hungry(torch.nn.Module):
    """Has too little memory."""

    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.06 GiB.")


def test_a_batch_that_does_not_fit_the_memory_is_a_clear_mistake():
    with pytest.raises(Mistake, match=r"^batch_size must fit the GPU's memory, got 100 rows; "):
        certify(Hungry(), torch.zeros(1, 1, 2, 2), sigma=0.5, n=200)


@contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Noting(nn.Module):
    """Keeps an intermediate result on itself, as networks whose features are wanted do."""

    def forward(self, x):
        self.bright = x.flatten(1).mean(dim=1)
        time.sleep(0.001)  # here another thread would write
        return torch.stack([0.5 - self.bright, self.bright - 0.5], dim=1)


class Hooked(nn.Module):
    """Reads what a hook has noted outside of the network."""

    def __init__(self):
        super().__init__()
        self.noted, self.layer = {}, nn.Flatten()
        self.layer.register_forward_hook(lambda *call: self.noted.update(features=call[2]))

    def forward(self, x):
        self.layer(x)
        time.sleep(0.001)
        bright = self.noted["features"].mean(dim=1)
        return torch.stack([0.5 - bright, bright - 0.5], dim=1)


class Locked(Noting):
    """Cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("network", [Noting, Hooked, Locked])
def test_what_a_network_notes_in_one_thread_is_not_read_in_another(network):
    dark_and_bright = torch.tensor([0, 255] * 10, dtype=torch.uint8)
    images = dark_and_bright[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    with threads(4):
        certificates = certify(network(), images, sigma=0.1, n=1000)
    assert [sorted(c.estimation) for c in certificates] == [[0, 1000]] * 20
    assert [c.label for c in certificates] == [0, 1] * 10


def test_threads_share_the_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with threads(3):
        copies = _one_a_thread(model, 100)
        assert len(_one_a_thread(model, 2)) == 2
    assert len({id(copy) for copy in copies}) == 3
    assert {id(tensor) for copy in copies for tensor in copy.parameters()} == {
        id(tensor) for tensor in model.parameters()
    }


def test_no_more_work_is_begun_than_threads_can_take_up():
    """Its results would fill the memory before anybody adds them up."""
    begun: list[int] = []

    def work():
        for i in range(1000):
            begun.append(i)
            yield i

    results = _in_threads(lambda i: (i, None), work(), 2)
    assert next(results) == (0, None) and len(begun) <= 5
    assert [i for i, _ in results] == list(range(1, 1000))


def test_the_number_of_threads_is_afterwards_what_it_was(monkeypatch):
    """What a thread sets for itself is all threads' where nobody has asked for their number."""
    asked: list[tuple[bool, int]] = []
    here = threading.main_thread()
    monkeypatch.setattr(
        torch, "set_num_threads", lambda n: asked.append((threading.current_thread() is here, n))
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    sampled(Fixed(0.0, 1.0), 2000)
    assert asked[-1] == (True, 3) and set(asked[:-1]) == {(False, 1)}


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


class Interrupted(Noting):
    """SIGTERM comes while it is copied."""

    def __deepcopy__(self, memo):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_is_not_taken_for_a_network_that_cannot_be_copied():
    with threads(2), pytest.raises(Stopped), stopping_at_once():
        _one_a_thread(Interrupted(), 100)


def test_signals_that_another_language_handles_stay_its_own(monkeypatch):
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", None)
    certify(Noting(), images, sigma=0.1, n=1000)


def test_a_signal_waits_until_a_thread_has_begun(monkeypatch):
    """One that nobody waits for aborts a process that ends meanwhile."""
    begun: list[threading.Thread] = []
    start, set_num_threads = threading.Thread.start, torch.set_num_threads

    def interrupted(thread: threading.Thread) -> None:
        begun.append(thread)
        start(thread)
        signal.raise_signal(signal.SIGTERM)

    def slowly(count: int) -> None:
        if threading.current_thread() in begun:
            time.sleep(0.2)
        set_num_threads(count)

    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    with threads(2), pytest.raises(Stopped), stopping_at_once():
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        monkeypatch.setattr(torch, "set_num_threads", slowly)
        certify(Noting(), images, sigma=0.1, n=1000)
    assert begun and not any(thread.is_alive() for thread in begun)
