from pathlib import Path

import pytest
import torch
from tiny_models import tiny_recipe

from macer.runs.checkpoints import load_checkpoint, save_checkpoint
from macer.runs.run import Run, begin_run
from macer.system.errors import Mistake


def new_run(folder: Path) -> Run:
    return begin_run(folder / "run", tiny_recipe(), "data", resume=False)


def save_steps(run: Run, *steps: int) -> list[Path]:
    """Checkpoints whose tensor is their step; newest first."""
    for step in steps:
        save_checkpoint(run, {"w": torch.full((5,), float(step))}, {"step": step})
    return sorted(run.checkpoints.iterdir(), reverse=True)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_newest_two_checkpoints_are_kept_and_the_newest_loaded(tmp_path):
    run = new_run(tmp_path)
    assert load_checkpoint(run) is None
    for step in (1, 2, 3, 10, 1_000_000):
        save_steps(run, step)
        tensors, state, damaged = load_checkpoint(run)
        assert torch.equal(tensors["w"], torch.full((5,), float(step)))
        assert (state, damaged) == ({"step": step}, [])
    steps = [int(path.name.partition("-")[0]) for path in run.checkpoints.iterdir()]
    assert sorted(steps) == [10, 1_000_000]


@pytest.mark.parametrize("how", ["bit", "cut", "empty", "other"])
def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, how):
    run = new_run(tmp_path)
    newest, before = save_steps(run, 3, 4)
    if how == "bit":
        damage(newest)
    else:
        size = {"cut": -1, "empty": 0, "other": None}[how]
        newest.write_bytes((before if how == "other" else newest).read_bytes()[:size])
    tensors, state, damaged = load_checkpoint(run)
    assert (tensors["w"][0], state, damaged) == (3.0, {"step": 3}, [newest])


def test_when_every_checkpoint_is_damaged_nothing_is_done(tmp_path):
    run = new_run(tmp_path)
    paths = save_steps(run, 3, 4)
    for path in paths:
        damage(path)
    before = {path: path.read_bytes() for path in paths}
    with pytest.raises(Mistake) as refusal:
        load_checkpoint(run)
    assert str(refusal.value).startswith(f"every checkpoint is damaged: {paths[0]}, {paths[1]}; ")
    assert {path: path.read_bytes() for path in run.checkpoints.iterdir()} == before
