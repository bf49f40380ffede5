import sys

import pytest
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.system.errors import Mistake
from macer.training.loop import train
from macer.training.metrics import watching

METRICS = {
    "epoch": 3, "step": 12, "loss": 0.5, "lr": 0.1, "lam": 2.0, "skipped_steps": 0,
    "samples_per_second": 12345.6,
}  # fmt: skip


def test_tensorboard_is_given_every_metric_of_every_epoch(tmp_path):
    """The run's folder is new: nothing may be in it before the run is."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with watching(tmp_path / "run", tensorboard=True) as watch:
        assert not (tmp_path / "run").exists()
        recipe = tiny_recipe(epochs=2, held_out=8)
        train(recipe, tiny_split(), CLASSES, tmp_path / "run", watch=watch)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"loss", "lr", "lam", "skipped_steps", "samples_per_second", "validation_radius"} <= set(
        events.Tags()["scalars"]
    )
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    assert [event.step for event in events.Scalars("loss")] == [3, 6]


def test_no_events_are_written_unless_asked_for(tmp_path):
    with watching(tmp_path, tensorboard=False) as watch:
        watch(METRICS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "epoch 3, loss 0.5000, 12,346 samples/s\n"),
        (
            {"skipped_steps": 2, "validation_accuracy": 0.75, "validation_radius": 0.25},
            "epoch 3, loss 0.5000, 2 steps skipped: loss not finite, held-out accuracy 0.750, "
            "radius 0.250, 12,346 samples/s\n",
        ),
    ],
)
def test_an_epoch_is_one_line(tmp_path, capsys, more, line):
    with watching(tmp_path, tensorboard=False) as watch:
        watch(METRICS | more)
    assert capsys.readouterr().err == line


def test_tensorboard_without_its_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    message = r"tensorboard must be installed for --tensorboard: pip install 'torch-macer\[tensorb"
    with pytest.raises(Mistake, match=message), watching(tmp_path, tensorboard=True):
        pytest.fail("watching")
    assert list(tmp_path.iterdir()) == []


class StandIn:
    """What macer needs of the package wandb: a run that is a context and takes figures."""

    def __init__(self) -> None:
        self.asked, self.logged, self.ended = {}, [], False

    def init(self, **asked):
        self.asked = asked
        return self

    def log(self, figures, *, step):
        self.logged.append((step, figures))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "0" * 40}, "online"),
        ({"WANDB_API_KEY": "0" * 40, "WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_wandb_is_given_every_metric_and_goes_online_with_a_key_alone(
    environment, mode, tmp_path, monkeypatch
):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    package = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", package)
    with watching(tmp_path / "run", tensorboard=False, wandb=True) as watch:
        train(tiny_recipe(epochs=2), tiny_split(), CLASSES, tmp_path / "run", watch=watch)
    assert package.asked["mode"] == mode
    assert package.asked["dir"] == str(tmp_path / "run")
    assert package.asked["config"]["epochs"] == 2
    assert [step for step, _ in package.logged] == [4, 8]
    assert {"loss", "lr", "lam", "samples_per_second"} <= set(package.logged[0][1])
    assert package.ended


def test_wandb_is_imported_only_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with watching(tmp_path, tensorboard=False) as watch:
        watch(METRICS)
    with (
        pytest.raises(
            Mistake, match=r"wandb must be installed for --wandb: pip install 'torch-mac"
        ),
        watching(tmp_path, tensorboard=False, wandb=True),
    ):
        pass
