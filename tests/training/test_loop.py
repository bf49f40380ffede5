import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from loss_batches import in_place_of
from processes import surroundings
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.data.sets import Split, load
from macer.losses import LOSSES
from macer.losses.catrs import catrs
from macer.losses.macer import macer
from macer.recipes import TrainRecipe
from macer.runs.run import Run
from macer.runs.trained_model import load_model, save_model
from macer.system.errors import Mistake, Stopped
from macer.system.files import locked, sha256_of_file
from macer.system.processes import SINGLE
from macer.training import saver
from macer.training.loop import Saver, train
from macer.training.preparation import card_of
from macer.training.step import Trainer
from macer.training.validation import Validation

# Everything that has a state of its own: statistics, momentum, average, crops and flips.
FULL = tiny_recipe(
    model="tiny_models:tiny_with_batch_norm", epochs=3, held_out=16, crop=1, flip=True, ema=0.9,
    nesterov=True, clip=1.0, normalise=True, lam_schedule="ramp",
)  # fmt: skip
STEPS = 9  # 3 epochs of (64 − 16) / 16


def trained(folder, recipe=FULL, split=None, **arguments):
    split = tiny_split() if split is None else split
    return train(recipe, split, CLASSES, folder, **arguments).read_bytes()


def recorded(folder):
    """metrics.jsonl, without the speed."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "samples_per_second"} for line in lines]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Crash(Exception):
    """What a test raises in the middle of training."""


def at_step(number, act):
    """The objective, which does something else first at one step."""
    calls = []

    def loss(batch, **settings):
        calls.append(None)
        if len(calls) - 1 == number:
            act()
        return macer(batch, **settings)

    return in_place_of(macer, loss)


def crash(*_):
    raise Crash


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A training that nothing interrupts: its folder, and its model's bytes."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, trained(folder)


@pytest.fixture(scope="module")
def sun(tmp_path_factory):
    """The same of a training that drops images and weighs the others."""
    folder = tmp_path_factory.mktemp("sun") / "run"
    return folder, trained(folder, SUN)


# law


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path, whole):
    assert trained(tmp_path / "a") == whole[1]
    other = tiny_recipe(**vars(FULL) | {"seed": 1})
    assert trained(tmp_path / "b", other) != whole[1]


def test_training_makes_a_run_with_a_model_in_it(whole):
    folder, _ = whole
    manifest = Run(folder).read_manifest()
    assert manifest["status"] == "trained"
    assert manifest["weights_sha256"] == sha256_of_file(folder / "model.safetensors")
    _, card = load_model(folder)
    assert (card.sigma, card.classes, card.shape) == (0.25, CLASSES, (1, 8, 8))
    assert (card.architecture, card.dataset) == (FULL.model, "tiny")
    pixels = tiny_split().images[: 64 - FULL.held_out] / 255  # statistics of what is trained on
    assert card.mean == pytest.approx([pixels.mean()])
    assert card.std == pytest.approx([pixels.std()])
    names = {path.name for path in folder.iterdir()} - {".lock"}
    assert names == {"manifest.json", "model.safetensors", "metrics.jsonl", "checkpoints"}


def test_training_reduces_the_loss_and_records_each_epoch(tmp_path):
    watched = []
    split = tiny_split(images=160)
    trained(tmp_path / "run", tiny_recipe(epochs=8, held_out=32), split, watch=watched.append)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines == watched
    assert [line["epoch"] for line in lines] == list(range(1, 9))
    assert [line["step"] for line in lines] == list(range(8, 65, 8))
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    assert lines[-1]["validation_accuracy"] > 0.9 > 0.5 > lines[0]["validation_radius"]
    assert all(line["samples_per_second"] > 0 for line in lines)


def test_the_manifest_has_the_seconds_of_all_epochs_and_the_samples_in_one(tmp_path, monkeypatch):
    monkeypatch.setitem(LOSSES, "macer", at_step(7, crash))
    with pytest.raises(Crash):
        trained(tmp_path / "run", checkpoint_seconds=0.0)
    trained(tmp_path / "run", resume=True)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    seconds = sum(48 * FULL.k / line["samples_per_second"] for line in lines)
    speed = Run(tmp_path / "run").read_manifest()["speed"]
    assert speed == pytest.approx(
        {"seconds": seconds, "samples_per_second": 3 * 48 * FULL.k / seconds}
    )


def test_a_finished_run_keeps_the_speed_and_the_device_it_was_trained_with(tmp_path):
    trained(tmp_path / "run")
    run = Run(tmp_path / "run")
    today = datetime.now(UTC).date()
    assert today - date.fromisoformat(run.read_manifest()["date"]) <= timedelta(days=1)
    other = {
        "date": "2026-01-31",
        "device": "another",
        "speed": {"seconds": 1.0, "samples_per_second": 2.0},
    }
    run.write_manifest(run.read_manifest() | other)
    trained(tmp_path / "run", resume=True)
    assert {name: run.read_manifest()[name] for name in other} == other


def test_held_out_images_never_reach_training_and_are_those_validated_on(tmp_path, monkeypatch):
    split = tiny_split()
    images = split.images.clip(0, 254)
    images[-16:] = 255
    split = replace(split, images=images)
    trained_on, validated_on = [], []
    take_step = Trainer._take_step

    def spy(trainer, x, *rest):
        trained_on.extend((x * 255).round().to(torch.uint8).numpy())
        take_step(trainer, x, *rest)

    def validate(_, held_out, *__, **___):
        validated_on.append(held_out)
        return {}

    monkeypatch.setattr(Trainer, "_take_step", spy)
    monkeypatch.setattr("macer.training.loop.validate", validate)
    trained(tmp_path / "run", tiny_recipe(epochs=2, held_out=16), split)
    assert len(trained_on) == 2 * 48
    assert np.array(trained_on).max() < 255
    assert all(np.array_equal(held.images, images[-16:]) for held in validated_on)
    assert all(np.array_equal(held.labels, split.labels[-16:]) for held in validated_on)


def test_a_batch_that_does_not_fit_the_memory_is_a_clear_mistake(tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.06 GiB.")

    monkeypatch.setattr(Trainer, "_take_step", full)
    with pytest.raises(Mistake, match=r"^batch and k must fit the GPU's memory, got 8 and 2; "):
        trained(tmp_path / "run", tiny_recipe(batch=8, k=2))


def test_held_out_images_are_looked_at_every_so_many_epochs_and_in_the_last(tmp_path):
    lines = []
    recipe = tiny_recipe(epochs=5, held_out=16)
    trained(tmp_path / "run", recipe, validation=Validation(every=2), watch=lines.append)
    assert [line["epoch"] for line in lines if "validation_radius" in line] == [2, 4, 5]


def test_the_model_that_is_looked_at_is_the_one_that_is_kept(tmp_path, monkeypatch):
    """With an average, that."""
    seen = []

    def validate(model, *_, **__):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {}

    monkeypatch.setattr("macer.training.loop.validate", validate)
    for ema in (0.0, 0.9):
        trained(tmp_path / str(ema), tiny_recipe(epochs=1, held_out=16, ema=ema))
        kept = load_model(tmp_path / str(ema))[0].state_dict()
        assert all(torch.equal(kept[name], tensor) for name, tensor in seen[-1].items())


def test_a_checkpoint_is_written_as_soon_as_the_last_one_is_old_enough(tmp_path, monkeypatch):
    now, saved = [100.0], []
    run = Run(tmp_path)
    trainer = SimpleNamespace(step=1, ranks=SINGLE, state=lambda: ())
    monkeypatch.setattr("macer.training.saver.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("macer.training.saver.save_checkpoint", lambda *_: saved.append(now[0]))
    saver = Saver(run, trainer, [], 30.0)
    for second in range(100, 200, 5):
        now[0] = float(second)
        saver.save_if_due([])
    assert saved == [130.0, 160.0, 190.0]


def test_each_seed_begins_with_other_weights(tmp_path):
    """So slow a training leaves them nearly where they were."""
    for seed in (0, 1):
        trained(tmp_path / str(seed), tiny_recipe(epochs=1, lr=1e-12, seed=seed))
    one, two = (load_model(tmp_path / str(seed))[0].state_dict() for seed in (0, 1))
    assert all((one[name] - two[name]).abs().max() > 0.01 for name in one if "1." in name)


def test_images_of_ones_own_are_normalised_by_their_own_statistics():
    split = tiny_split(channels=3)
    own = split.images.mean(axis=(0, 2, 3)) / 255
    for dataset, mean in (("folder", own), ("cifar10", (0.4914, 0.4822, 0.4465))):
        card = card_of(tiny_recipe(dataset=dataset, normalise=True), split, CLASSES)
        assert card.mean == pytest.approx(mean, rel=1e-3)
        assert card_of(tiny_recipe(dataset=dataset), split, CLASSES).mean == (0.0,) * 3


def test_held_out_images_are_looked_at_with_so_many_samples(tmp_path):
    radii = []
    for samples in (1, 33):  # one vote can be right, but its radius is σΦ⁻¹(½) = 0
        recipe = tiny_recipe(epochs=2, held_out=16)
        validation = Validation(samples=samples)
        trained(tmp_path / str(samples), recipe, validation=validation, watch=radii.append)
    assert [line["validation_radius"] > 0 for line in radii] == [False, False, True, True]


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_training_that_crashed_at_a_step_ends_bit_for_bit_as_if_it_had_not(
    tmp_path, monkeypatch, whole, step, seconds
):
    monkeypatch.setitem(LOSSES, "macer", at_step(step, crash))
    with pytest.raises(Crash):
        trained(tmp_path / "run", checkpoint_seconds=seconds)
    if step and not seconds:
        assert f"{step:09d}" in {
            path.name[:9] for path in Run(tmp_path / "run").checkpoints.iterdir()
        }
    content = trained(tmp_path / "run", resume=True)
    assert content == whole[1]
    assert recorded(tmp_path / "run") == recorded(whole[0])


@pytest.mark.parametrize("seconds", [0.0, 1e9])
@pytest.mark.parametrize("what", ["save_checkpoint", "save_model", "write_atomically", "validate"])
@pytest.mark.parametrize("time_", [0, 1, 2])
def test_training_that_crashed_while_saving_ends_bit_for_bit_as_if_it_had_not(
    tmp_path, monkeypatch, whole, what, time_, seconds
):
    import macer.training.loop

    home = saver if hasattr(saver, what) else macer.training.loop
    original, calls = getattr(home, what), []

    def crash_once(*arguments, **settings):
        calls.append(None)
        if len(calls) - 1 == time_:
            raise Crash
        return original(*arguments, **settings)

    monkeypatch.setattr(home, what, crash_once)
    try:
        trained(tmp_path / "run", checkpoint_seconds=seconds)
    except Crash:
        trained(tmp_path / "run", checkpoint_seconds=seconds, resume=True)
    else:  # it is called less often
        assert len(calls) <= time_
    assert (tmp_path / "run/model.safetensors").read_bytes() == whole[1]
    assert recorded(tmp_path / "run") == recorded(whole[0])


def test_training_that_crashes_again_and_again_ends_bit_for_bit_as_if_it_had_not(
    tmp_path, monkeypatch, whole
):
    for _ in range(STEPS - 1):  # each life takes one step
        monkeypatch.setitem(LOSSES, "macer", at_step(1, crash))
        with pytest.raises(Crash):
            trained(tmp_path / "run", checkpoint_seconds=0.0, resume=True)
    assert trained(tmp_path / "run", resume=True) == whole[1]
    assert recorded(tmp_path / "run") == recorded(whole[0])


def test_a_network_with_dropout_resumes_bit_for_bit_too(tmp_path, monkeypatch):
    recipe = tiny_recipe(model="tiny_models:tiny_with_dropout")
    uninterrupted = trained(tmp_path / "whole", recipe)
    with monkeypatch.context() as patch:
        patch.setitem(LOSSES, "macer", at_step(5, crash))
        with pytest.raises(Crash):
            trained(tmp_path / "run", recipe, checkpoint_seconds=0.0)
    torch.manual_seed(1)
    assert trained(tmp_path / "run", recipe, resume=True) == uninterrupted


# Odds at the beginning of epochs 2 and 4, in steps 6 and 12.
SUN = tiny_recipe(**vars(FULL) | {"epochs": 5, "drop_epoch": 2, "reweight_every": 2, "lam": 0.0})


@pytest.mark.parametrize("step", [5, 6, 7, 10, 12, 14])
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_training_that_drops_and_weighs_images_resumes_bit_for_bit(
    tmp_path, monkeypatch, step, seconds, sun
):
    monkeypatch.setitem(LOSSES, "macer", at_step(step, crash))
    with pytest.raises(Crash):
        trained(tmp_path / "run", SUN, checkpoint_seconds=seconds)
    assert trained(tmp_path / "run", SUN, resume=True) == sun[1]
    assert recorded(tmp_path / "run") == recorded(sun[0])


def test_dropping_and_weighing_images_changes_the_weights(tmp_path, sun):
    assert trained(tmp_path / "run", tiny_recipe(**vars(SUN) | {"drop_epoch": 0})) != sun[1]


SEMI = tiny_recipe(epochs=3, labelled=20, pseudo_weight=0.5)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The run of a first model that tells all 64 images apart."""
    folder = tmp_path_factory.mktemp("first") / "run"
    trained(folder, tiny_recipe(epochs=20, lam=0.0))
    return folder


def with_fields(recipe, **changes):
    return tiny_recipe(**vars(recipe) | changes)


def relabelled(first_image):
    """The images with other labels from one on."""
    split = tiny_split()
    split.labels[first_image:] = (split.labels[first_image:] + 1) % len(CLASSES)
    return split


def test_hidden_labels_never_reach_the_weights(tmp_path, first):
    recipe = with_fields(SEMI, pseudo=str(first))
    semi = trained(tmp_path / "a", recipe)
    assert trained(tmp_path / "b", recipe, relabelled(20)) == semi
    assert trained(tmp_path / "c", recipe, relabelled(19)) != semi


def test_a_first_model_that_knows_all_labels_gives_supervised_training(tmp_path, first):
    recipe = with_fields(SEMI, pseudo=str(first), pseudo_weight=1.0)
    supervised = with_fields(SEMI, labelled=0)
    assert trained(tmp_path / "a", recipe) == trained(tmp_path / "b", supervised)


def test_without_a_first_model_training_is_of_the_labelled_images_alone(tmp_path):
    recipe = tiny_recipe(labelled=32, normalise=True)
    split = tiny_split()
    alone = split.part(0, 32)
    supervised = with_fields(recipe, labelled=0)
    assert trained(tmp_path / "a", recipe) == trained(tmp_path / "b", supervised, alone)


def test_semi_supervised_training_resumes_bit_for_bit(tmp_path, monkeypatch, first):
    recipe = with_fields(SEMI, pseudo=str(first))
    uninterrupted = trained(tmp_path / "whole", recipe)
    with monkeypatch.context() as patch:
        patch.setitem(LOSSES, "macer", at_step(5, crash))
        with pytest.raises(Crash):
            trained(tmp_path / "run", recipe, checkpoint_seconds=0.0)
    assert trained(tmp_path / "run", recipe, resume=True) == uninterrupted


def test_the_teacher_is_the_model_that_the_recipe_names(tmp_path, monkeypatch, first):
    teachers = []

    def watched(batch, **settings):
        teachers.append(batch.teacher)
        return catrs(batch, **settings)

    monkeypatch.setitem(LOSSES, "catrs", in_place_of(catrs, watched))
    trained(tmp_path / "run", tiny_recipe(loss="catrs", epochs=1, teacher=str(first)))
    expected = load_model(first)[0].state_dict()
    assert len(teachers) == 4
    for name, tensor in teachers[0].state_dict().items():
        assert torch.equal(tensor, expected[name])
    known = {"teacher": sha256_of_file(first / "model.safetensors")}
    assert Run(tmp_path / "run").read_manifest()["models_sha256"] == known


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("step", [0, 1, 2, STEPS - 1])
def test_a_signal_saves_and_stops_and_a_resumed_training_ends_bit_for_bit_the_same(
    tmp_path, monkeypatch, whole, step, number
):
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)]
    send = lambda: os.kill(os.getpid(), number)  # noqa: E731
    monkeypatch.setitem(LOSSES, "macer", at_step(step, send))
    with pytest.raises(Stopped, match=f"stopped at step {step + 1}; the state is saved") as stopped:
        trained(tmp_path / "run")
    assert stopped.value.signal_number == number
    assert newest_step(tmp_path / "run") == step + 1
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == before
    assert trained(tmp_path / "run", resume=True) == whole[1]
    assert recorded(tmp_path / "run") == recorded(whole[0])


def test_a_signal_between_two_epochs_saves_and_stops(tmp_path, whole):
    def watch(metrics):
        if metrics["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="stopped at step 6"):
        trained(tmp_path / "run", watch=watch)
    assert trained(tmp_path / "run", resume=True) == whole[1]
    assert recorded(tmp_path / "run") == recorded(whole[0])


def test_a_resumed_training_tells_its_progress_and_speed_from_where_it_goes_on(
    tmp_path, monkeypatch
):
    """A step takes a second here, so that every epoch has one speed, also one that was cut off."""
    now, bars = [0.0], []
    take_step = Trainer._take_step

    def second(trainer, *batch):
        now[0] += 1
        take_step(trainer, *batch)

    @contextmanager
    def bar(what, total, unit, done):
        bars.append([what, total, unit, done])
        yield lambda samples: bars[-1].append(samples)

    monkeypatch.setattr(Trainer, "_take_step", second)
    monkeypatch.setattr("macer.training.loop.bar", bar)
    monkeypatch.setattr("macer.training.loop.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setitem(LOSSES, "macer", at_step(4, crash))
    with pytest.raises(Crash):
        trained(tmp_path / "run", checkpoint_seconds=0.0)
    trained(tmp_path / "run", resume=True)
    lines = Run(tmp_path / "run").read_metrics()
    assert [line["samples_per_second"] for line in lines] == [64.0] * 3
    assert bars == [
        ["training run", 9 * 64, "samples", 0, *[64] * 4],
        ["training run", 9 * 64, "samples", 4 * 64, *[64] * 5],
    ]


def test_a_second_signal_is_not_caught(tmp_path, monkeypatch):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setitem(LOSSES, "macer", at_step(1, twice))
    # A shell that runs the tests in the background has them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_damaged_checkpoint_is_passed_over_and_said_so(tmp_path, monkeypatch, whole, capsys):
    monkeypatch.setitem(LOSSES, "macer", at_step(7, crash))
    with pytest.raises(Crash):
        trained(tmp_path / "run", checkpoint_seconds=0.0)
    newest = max(Run(tmp_path / "run").checkpoints.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    assert trained(tmp_path / "run", resume=True) == whole[1]
    said = capsys.readouterr().err
    assert f"{newest} is damaged; continuing from the one before it\n" in said
    assert "at step 6, epoch 2\n" in said
    assert recorded(tmp_path / "run") == recorded(whole[0])


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(tmp_path, whole):
    trained(tmp_path / "run")
    before = contents(tmp_path / "run")
    assert trained(tmp_path / "run", resume=True) == whole[1]
    assert contents(tmp_path / "run") == before


def test_what_a_dead_process_left_over_is_removed(tmp_path):
    trained(tmp_path / "run")
    before = contents(tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run/checkpoints"):
        (folder / ".manifest.json.1.tmp").touch()
    trained(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


# refusal


def test_a_run_that_another_process_writes_is_refused_and_left_alone(tmp_path):
    trained(tmp_path / "run")
    (tmp_path / "run/.metrics.jsonl.1.tmp").touch()  # being written just now
    before = contents(tmp_path / "run")
    with (
        locked(tmp_path / "run"),
        pytest.raises(Mistake, match="run is being written by another process"),
    ):
        trained(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_when_every_checkpoint_is_damaged_training_is_refused_and_nothing_lost(tmp_path):
    trained(tmp_path / "run", checkpoint_seconds=0.0)
    for path in Run(tmp_path / "run").checkpoints.iterdir():
        path.write_bytes(b"")
    before = contents(tmp_path / "run")
    with pytest.raises(Mistake, match=r"every checkpoint is damaged: .*, .*; delete the run's"):
        trained(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run") == before


def test_a_training_that_fails_in_its_first_epoch_leaves_its_folder_free(tmp_path):
    wild = tiny_recipe(**vars(FULL) | {"lr": 1e30, "clip": 0.0})
    with pytest.raises(Mistake, match=r"not finite .* epoch 1; lower lr"):
        trained(tmp_path / "run", wild, checkpoint_seconds=0.0)
    assert trained(tmp_path / "run") == trained(tmp_path / "other")


def test_a_training_that_fails_later_keeps_its_checkpoints(tmp_path, monkeypatch):
    def fails(self):
        if self.epoch == 2:
            raise Mistake("the loss was not finite")
        return close_epoch(self)

    close_epoch = Trainer.close_epoch
    monkeypatch.setattr(Trainer, "close_epoch", fails)
    with pytest.raises(Mistake, match=r"^the loss was not finite$"):
        trained(tmp_path / "run", checkpoint_seconds=0.0)
    assert list(Run(tmp_path / "run").checkpoints.iterdir())
    with pytest.raises(Mistake, match="run holds a run already"):
        trained(tmp_path / "run")


def test_a_run_that_exists_is_refused_and_left_alone(tmp_path):
    trained(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(Mistake, match="run holds a run already"):
        trained(tmp_path / "run")
    with pytest.raises(Mistake, match=r"^seed must be 0 to resume .*run, got 1$"):
        trained(tmp_path / "run", tiny_recipe(**vars(FULL) | {"seed": 1}), resume=True)
    with pytest.raises(Mistake, match="the training data must be those"):
        trained(tmp_path / "run", split=tiny_split(seed=1), resume=True)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("field", ["teacher", "pseudo"])
def test_a_run_is_not_resumed_with_another_model_at_its_teachers_path(tmp_path, first, field):
    path = tmp_path / "teacher.safetensors"
    shutil.copy(first / "model.safetensors", path)
    recipe = tiny_recipe(loss="catrs", **{"teacher": str(first), field: str(path)}, labelled=20)
    code = ("tiny_models",)
    content = trained(tmp_path / "run", recipe, code=code)
    assert trained(tmp_path / "run", recipe, resume=True, code=code) == content
    model, card = load_model(path, code=code)
    save_model(path, {name: -tensor for name, tensor in model.state_dict().items()}, card)
    message = f"{field} must be the model that .*run began with; the SHA-256 of .*teacher.* differs"
    with pytest.raises(Mistake, match=message):
        trained(tmp_path / "run", recipe, resume=True, code=code)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "mace"}, "unknown loss 'mace', did you mean 'macer'?; choose from"),
        (
            {"batch": 50, "held_out": 20},
            "held_out and batch must not exceed the 64 training images together, got 20 and 50",
        ),
        ({"model": "lenett"}, "unknown model 'lenett'"),
        ({"loss": "catrs", "teacher": "no-run"}, "no run or model at no-run"),
        ({"labelled": 64}, "labelled must be at least batch, 16, and fewer than the 64 training"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(tmp_path, changes, message):
    with pytest.raises(Mistake, match=re.escape(message)):
        trained(tmp_path / "run", tiny_recipe(**changes))
    assert list(tmp_path.iterdir()) == []


def test_a_crop_is_at_most_as_large_as_the_shorter_side(tmp_path):
    split = tiny_split()
    narrow = Split(np.ascontiguousarray(split.images[:, :, :, :6]), split.labels)
    trained(tmp_path / "run", tiny_recipe(crop=6, epochs=1), narrow)
    with pytest.raises(Mistake, match="crop must be at most the images' size, 6, got 7"):
        trained(tmp_path / "other", tiny_recipe(crop=7), narrow)


# law, slow

KILLS = 50
TOML = """
model = "tiny_models:tiny_with_batch_norm"
sigma = 0.25
k = 2
epochs = 3
batch = 20
lr = 0.05
lr_schedule = "cosine"
ema = 0.99
crop = 1
held_out = 2

[loss]
name = "macer"
lam = 1.0
"""  # 3 epochs of 499 steps


@pytest.mark.slow
def test_training_killed_50_times_ends_byte_for_byte_as_if_it_had_not(tmp_path):
    draw = random.Random(0)
    (tmp_path / "recipe.toml").write_text(TOML)
    start_process(tmp_path, "whole", seconds=1e9).wait()
    for kill in range(KILLS):
        life = start_process(tmp_path, "run", seconds=0)
        starting = kill % 2 == 0
        wait_for_steps(
            life,
            tmp_path / "run",
            draw.randrange(1, 30),
            seconds=draw.uniform(0, 2) if starting else 60.0,
        )
        time.sleep(draw.uniform(0, 0.01))
        life.kill()
        assert life.wait() == -signal.SIGKILL, "the training is too short for so many kills"
    assert start_process(tmp_path, "run", seconds=1e9).wait() == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert models[0] == models[1]
    assert recorded(tmp_path / "run") == recorded(tmp_path / "whole")
    names = {path.name for path in (tmp_path / "run").rglob("*")}
    assert not [name for name in names if name.endswith(".tmp")]


def start_process(folder: Path, out: str, *, seconds: float) -> subprocess.Popen:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "macer", "train", "recipe.toml", "--out", out, "--resume"),
            *("--device", "cpu", "--checkpoint-seconds", str(seconds), "--code", "tiny_models"),
        ],
        cwd=folder,
        env=surroundings(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_steps(life: subprocess.Popen, run: Path, steps: int, *, seconds: float) -> None:
    """Wait until the newest checkpoint is that many steps further, or the time is over."""
    begin, end = newest_step(run), time.monotonic() + seconds
    while newest_step(run) < begin + steps and time.monotonic() < end and life.poll() is None:
        time.sleep(0.002)


def newest_step(run: Path) -> int:
    return max((int(p.name[:9]) for p in (run / "checkpoints").glob("[0-9]*")), default=0)


# images of one's own

ARRAYS = tiny_recipe(dataset="mnist-sample", normalise=True)


def arrays(**arguments):
    return tuple(tiny_split(**arguments))


def test_images_of_ones_own_are_recorded_as_arrays_and_normalised_by_themselves(tmp_path):
    folder = tmp_path / "run"
    train(ARRAYS, arrays(), CLASSES, folder)
    _, card = load_model(folder)
    pixels = tiny_split().images / 255
    assert card.dataset == Run(folder).read_recipe().dataset == "arrays"
    assert card.mean == pytest.approx([pixels.mean()])
    assert card.std == pytest.approx([pixels.std()])


def test_a_data_sets_images_are_recorded_by_its_name_whatever_the_recipe_says(tmp_path):
    few = load("mnist-sample", "train").part(0, 64)
    recipe = tiny_recipe(dataset="cifar10", epochs=1, normalise=True, held_out=16, labelled=32)
    train(recipe, few, folder=tmp_path / "run")
    _, card = load_model(tmp_path / "run")
    assert card.dataset == Run(tmp_path / "run").read_recipe().dataset == "mnist-sample"
    assert (card.mean, card.classes) == ((0.1307,), tuple("0123456789"))


def test_a_run_of_arrays_is_resumed_with_the_same_arrays_only(tmp_path, monkeypatch):
    train(ARRAYS, arrays(), CLASSES, tmp_path / "whole")
    monkeypatch.setitem(LOSSES, "macer", at_step(7, crash))
    with pytest.raises(Crash):
        train(ARRAYS, arrays(), CLASSES, tmp_path / "run", checkpoint_seconds=0.0)
    with pytest.raises(Mistake, match="the training data must be those"):
        train(ARRAYS, arrays(seed=1), CLASSES, tmp_path / "run", resume=True)
    with pytest.raises(Mistake, match=r"^dataset must be arrays to resume .*, got tiny$"):
        train(ARRAYS, tiny_split(), CLASSES, tmp_path / "run", resume=True)
    images, labels = arrays()
    floats = torch.from_numpy(images) / 255, torch.from_numpy(labels)
    model = train(ARRAYS, floats, CLASSES, tmp_path / "run", resume=True)
    assert model.read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_a_run_of_arrays_that_began_under_a_data_sets_name_goes_on_under_it(tmp_path, monkeypatch):
    named = replace(tiny_split(), dataset="mnist-sample")
    train(ARRAYS, named, CLASSES, tmp_path / "whole")
    monkeypatch.setitem(LOSSES, "macer", at_step(7, crash))
    with pytest.raises(Crash):
        train(ARRAYS, named, CLASSES, tmp_path / "run", checkpoint_seconds=0.0)
    model = train(ARRAYS, arrays(), CLASSES, tmp_path / "run", resume=True)
    assert model.read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_a_recipe_may_be_given_by_its_name(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('model = "tiny_models:tiny"\nepochs = 1\nk = 2\nbatch = 16\n')
    with pytest.raises(Mistake, match="names code of its own, tiny_models:tiny"):
        train(str(file), arrays(), folder=tmp_path / "run")
    train(str(file), arrays(), folder=tmp_path / "run", code=["tiny_models"])
    assert Run(tmp_path / "run").read_recipe().k == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "dmo"}, "unknown recipe 'dmo', did you mean 'demo'?; `macer recipes` lists"),
        ({"recipe": {"k": 3}}, "recipe must be a TrainRecipe or the name of a recipe, got {'k': "),
        ({"recipe": TrainRecipe}, "recipe must be a TrainRecipe or the name of a recipe, got an "),
        ({"folder": None}, "folder must be the path of the run to write, got None"),
        ({"folder": ""}, "folder must be the path of the run to write, got ''"),
        ({"folder": 3}, "folder must be the path of the run to write, got 3"),
        ({"device": "gpu"}, "device must be cpu or cuda, got 'gpu'"),
        ({"device": "meta"}, "device must be cpu or cuda, got 'meta'"),
        ({"device": None}, "device must be cpu or cuda, got None"),
        ({"device": "cuda:99"}, f"device must be one of {torch.cuda.device_count()} GPUs, or cpu, "
         "got 'cuda:99'"),
        ({"resume": "yes"}, "resume must be True or False, got 'yes'"),
        ({"checkpoint_seconds": "3"}, "checkpoint_seconds must be a number of seconds, got '3'"),
        ({"checkpoint_seconds": math.nan}, "checkpoint_seconds must be at least 0, got nan"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds must be at least 0, got -1"),
        ({"validation": 5}, "validation must be a macer.training.validation.Validation, got 5"),
        ({"watch": []}, "watch must be a function of an epoch's metrics, got []"),
        ({"classes": 3}, "classes must be a list of names, one per label, got 3; "),
        ({"data": (tiny_split().images / 254, tiny_split().labels)}, "images of floats must be "),
        ({"data": "mnist"}, "data must be (images, labels), a sequence of (image, label) pairs"),
        ({"recipe": replace(ARRAYS, batch=64, k=10**6, epochs=1)}, "batch and k must fit the "
         "memory of cpu, 1,000,000,000 bytes, got 64 and 1000000, whose noise is 16,384,000,000 "
         "bytes; lower one of them"),
    ],
)  # fmt: skip
def test_an_argument_that_is_none_is_refused_before_anything_is_written(
    tmp_path, monkeypatch, arguments, message
):
    monkeypatch.setattr("macer.training.arguments._memory", lambda _: 10**9)
    given = {"recipe": ARRAYS, "data": arrays(), "folder": tmp_path / "run"} | arguments
    with pytest.raises(Mistake) as refusal:
        train(**given)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())
