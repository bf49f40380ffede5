"""Which thread runs which copy of a network, and what a signal does to threads."""

import linecache
import signal
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from torch import fx, nn

from macer.certification.largest_radius import certify
from macer.smoothing.sampling import Sampler
from macer.smoothing.streams import Purpose
from macer.smoothing.threads import in_threads, networks_for_threads
from macer.system.errors import Stopped
from macer.system.signals import sigterm_raises


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


@pytest.mark.medium
@pytest.mark.parametrize("network", [Noting, Hooked, Locked])
def test_what_a_network_notes_in_one_thread_is_not_read_in_another(network):
    dark_and_bright = torch.tensor([0, 255] * 10, dtype=torch.uint8)
    images = dark_and_bright[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    with threads(4):
        certificates = certify(network(), images, sigma=0.1, n=1000)
    assert [sorted(c.estimation) for c in certificates] == [[0, 1000]] * 20
    assert [c.label for c in certificates] == [0, 1] * 10


class Leaf(Noting):
    """A layer of a user's own that a trace calls as it is."""


class Tracer(fx.Tracer):
    """Calls the layers of a user's own as they are."""

    def is_leaf_module(self, module, name):
        return isinstance(module, Leaf) or super().is_leaf_module(module, name)


def traced(layer):
    whole = nn.Sequential(nn.Identity(), layer)
    return fx.GraphModule(whole, Tracer().trace(whole)).eval()


def test_a_traced_network_of_torchs_layers_is_not_copied_for_each_draw():
    """torch.fx keeps the code of each copy for ever."""
    model = traced(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)))
    sampler = Sampler(model=model, images=torch.zeros(1, 1, 2, 2), sigma=0.5, seed=0)
    with threads(3):
        sampler.draw(1000, Purpose.ESTIMATION)
        before = len(linecache.cache)
        for _ in range(3):
            sampler.draw(1000, Purpose.ESTIMATION)
    assert len(linecache.cache) == before


def test_a_traced_network_with_a_layer_of_a_users_own_is_copied():
    with threads(3):
        assert len({id(copy) for copy in networks_for_threads(traced(Leaf()), 100)}) == 3


def test_nothing_to_draw_is_for_one_network():
    for model in (traced(nn.Flatten()), nn.Flatten()):
        assert networks_for_threads(model, 0) == [model]


def test_threads_share_the_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with threads(3):
        copies = networks_for_threads(model, 100)
        assert len(networks_for_threads(model, 2)) == 2
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

    results = in_threads(lambda network, i: i, work(), [nn.Identity(), nn.Identity()])
    assert next(results) == 0 and len(begun) <= 5
    assert list(results) == list(range(1, 1000))


def test_the_number_of_threads_is_afterwards_what_it_was(monkeypatch):
    """What a thread sets for itself is all threads' where nobody has asked for their number."""
    asked: list[tuple[bool, int]] = []
    main = threading.main_thread()
    monkeypatch.setattr(
        torch, "set_num_threads", lambda n: asked.append((threading.current_thread() is main, n))
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    images = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    Sampler(model=Noting(), images=images, sigma=0.5, seed=0).draw(2000, Purpose.ESTIMATION)
    assert asked[-1] == (True, 3) and set(asked[:-1]) == {(False, 1)}


class Interrupted(Noting):
    """SIGTERM comes while it is copied."""

    def __deepcopy__(self, memo):
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_is_not_taken_for_a_network_that_cannot_be_copied():
    with threads(2), pytest.raises(Stopped), sigterm_raises():
        networks_for_threads(Interrupted(), 100)


@pytest.mark.medium
def test_after_an_interruption_no_further_chunk_is_begun():
    calls: list[int] = []  # of all threads' networks

    class Counting(Noting):
        def forward(self, x):
            calls.append(len(x))
            time.sleep(0.01)
            return super().forward(x)

    model, images = Counting(), torch.zeros(8, 1, 8, 8, dtype=torch.uint8)
    certify(model, images[:1], sigma=0.1, n=100)  # the network is tried once
    calls.clear()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    sampler = Sampler(model=model, images=images, sigma=0.1, seed=0, progress=interrupt)
    with threads(2), pytest.raises(KeyboardInterrupt):
        sampler.draw(5000, Purpose.ESTIMATION)
    # The first task has five chunks, the other thread has as many; then each ends its chunk.
    assert 5 <= len(calls) <= 13


def test_the_results_of_acts_that_did_not_begin_are_not_waited_for():
    begun, ended = [], threading.Event()

    def act(_, item):
        begun.append(item)
        return item if item == 0 else ended.wait(60)

    results = in_threads(act, iter(range(100)), [nn.Identity()], ended=ended)
    assert next(results) == 0 and not ended.is_set()
    results.close()
    assert ended.is_set() and len(begun) <= 2


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 40])
def test_few_chunks_of_one_image_are_shared_by_all_threads(chunks, monkeypatch):
    tasks, sample = [], Sampler._sample

    def watched(self, *arguments):
        tasks.append(len(arguments[-1].slots))
        return sample(self, *arguments)

    monkeypatch.setattr(Sampler, "_sample", watched)
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    with threads(2):
        Sampler(model=Noting(), images=images, sigma=0.1, seed=0).draw(
            100 * chunks, Purpose.ESTIMATION
        )
    assert sum(tasks) == chunks
    assert max(tasks) == min(-(-chunks // 2), 5)


def test_signals_that_another_language_handles_stay_its_own(monkeypatch):
    images = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", None)
    certify(Noting(), images, sigma=0.1, n=1000)


@pytest.mark.medium
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
    with threads(2), pytest.raises(Stopped), sigterm_raises():
        monkeypatch.setattr(threading.Thread, "start", interrupted)
        monkeypatch.setattr(torch, "set_num_threads", slowly)
        certify(Noting(), images, sigma=0.1, n=1000)
    assert begun and not any(thread.is_alive() for thread in begun)
