import pytest
import torch
from tiny_models import tiny, tiny_recipe, tiny_split
from torch import nn

from macer.certification import pace as module
from macer.certification.pace import measured_pace
from macer.certification.target import Target
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import CHUNKS_PER_TASK
from macer.system.errors import Mistake
from macer.training import speed
from macer.training.speed import steps_per_second
from macer.training.step import Trainer

CPU = torch.device("cpu")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def target(network):
    return Target(network, "net", "net", 0.5, (1, 4, 4), 3, "")


class Slow(nn.Module):
    """A network that takes so many seconds for each image, by the clock."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = [clock], seconds
        self.linear = nn.Linear(16, 3)

    def forward(self, x):
        self.clock[0].now += self.seconds * len(x)
        return self.linear(x.flatten(1))

    def __deepcopy__(self, memo):  # all copies have the one clock
        return self


@pytest.mark.medium
@pytest.mark.parametrize("seconds", [1e-5, 0.01, 1.0])
def test_the_pace_is_that_of_the_network(clock, seconds):
    pace = measured_pace(target(Slow(clock, seconds)), device=CPU, clock=clock)
    assert pace.samples_per_second == pytest.approx(1 / seconds)
    assert (pace.threads, pace.task, pace.rows) == (1, CHUNKS_PER_TASK, CHUNK)
    assert not pace.padded


def test_the_preparation_is_what_comes_before_the_first_sample(clock):
    pace = measured_pace(target(Slow(clock, 0.01)), device=CPU, clock=clock)
    rows = (clock.now - pace.preparation) / 0.01
    assert rows == pytest.approx(round(rows / CHUNK) * CHUNK)  # nothing but samples after it
    assert pace.preparation >= 0.01 * (11 * CHUNK + 16)  # tried on 11 batches, run on 16 images


def test_what_is_sampled_is_what_certify_samples(clock, monkeypatch):
    made = []
    sampler = module.Sampler

    def watched(**settings):
        made.append(sampler(**settings))
        return made[-1]

    monkeypatch.setattr(module, "Sampler", watched)
    settings = {"betas": (1.0,), "exact": False, "row_by_row": True}
    pace = measured_pace(target(Slow(clock, 0.01)), device=CPU, clock=clock, **settings)
    [one] = made
    assert (one.betas, one.row_by_row, one.exact, one.sigma) == ((1.0,), True, False, 0.5)
    assert (pace.rows, pace.task) == (1, 1)


def test_a_training_step_is_timed_in_the_middle_of_the_training(clock):
    recipe = tiny_recipe(epochs=10, batch=16, k=2)
    trainer = Trainer(recipe, tiny(3, 1), tiny_split(64), CPU)
    epochs = []

    def rest_of_epoch(plain=trainer.rest_of_epoch):
        for _ in plain():
            epochs.append((trainer.step - 1) // trainer.steps_per_epoch)
            clock.now += 0.25
            yield

    trainer.rest_of_epoch = rest_of_epoch
    assert steps_per_second(trainer, clock=clock) == pytest.approx(4.0)
    assert min(epochs) == 5 and max(epochs) < 10


def test_the_first_steps_on_a_gpu_are_not_timed(clock, monkeypatch):
    """Kernels are compiled in them, and the step is recorded; a slow one was taken for the rate."""
    trainer = Trainer(tiny_recipe(epochs=10, batch=16, k=2), tiny(3, 1), tiny_split(64), CPU)
    steps = []

    def rest_of_epoch():
        for _ in range(trainer.steps_per_epoch):
            trainer.step += 1
            steps.append(trainer.step)
            clock.now += 20.0 if len(steps) <= 4 else 0.01
            yield

    trainer.rest_of_epoch = rest_of_epoch
    monkeypatch.setattr(speed, "wait_for", lambda _: None)
    assert steps_per_second(trainer, clock=clock) == pytest.approx(0.05)  # a CPU has none of it
    trainer.device = torch.device("cuda")
    steps.clear()
    assert steps_per_second(trainer, clock=clock) == pytest.approx(100.0)


def test_a_training_of_one_step_is_timed_again_and_again(clock):
    trainer = Trainer(tiny_recipe(epochs=1, batch=64, k=1), tiny(3, 1), tiny_split(64), CPU)

    def rest_of_epoch(plain=trainer.rest_of_epoch):
        for _ in plain():
            clock.now += 1.0
            yield

    trainer.rest_of_epoch = rest_of_epoch
    assert steps_per_second(trainer, clock=clock) == pytest.approx(1.0)


def test_a_network_that_certify_refuses_is_refused(clock):
    class Random(nn.Module):
        def forward(self, x):
            return torch.rand(len(x), 3)

    with pytest.raises(Mistake, match="the model must give an image the same logits"):
        measured_pace(target(Random()), device=CPU, clock=clock)
