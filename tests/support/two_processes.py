"""What torchrun starts twice for tests/system/test_processes.py: tiny trainings by both."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from tiny_models import CLASSES, tiny_recipe, tiny_split

from macer.recipes import TrainRecipe
from macer.system.errors import Stopped
from macer.system.processes import Ranks, joined
from macer.training.loop import train

TASKS = Path("/proc/self/task")  # a folder for each thread, where the system has it

ATTACK = {"loss": "smoothadv", "epsilon": 0.5, "epsilon_ramp": 0, "steps": 2}

# Trainings whose weights do not depend on the number of processes.
SAME: dict[str, TrainRecipe] = {
    "macer": tiny_recipe(crop=1, flip=True, clip=1.0, ema=0.9),
    "smoothadv": tiny_recipe(**ATTACK),
    "smoothmix": tiny_recipe(loss="smoothmix", eta=1.0, steps=2),
    "sun": tiny_recipe(
        loss="sun",
        steps=1,
        step_size=0.2,
        attack_epoch=1,
        drop_epoch=1,
        drop_below=0.1,
        reweight_every=1,
    ),
    "muon": tiny_recipe(optimizer="muon", held_out=16),
}

# Batch-norm takes its statistics from a part of a batch, and attacks see those it has kept.
NORMED = tiny_recipe(model="tiny_models:tiny_with_batch_norm", epochs=4, **ATTACK)


def main(out: Path) -> None:
    """Train all, and write down what is left of the processes' talk once they have parted."""
    _train_together(out)
    if TASKS.is_dir():
        threads = len(list(TASKS.iterdir()))
        (out / f"threads-{os.environ['RANK']}").write_text(str(threads))


def _train_together(out: Path) -> None:
    with joined(torch.device("cpu")) as ranks:
        for name, recipe in SAME.items():
            _train(recipe, out / name, ranks)
        _train(NORMED, out / "normed", ranks)
        try:
            _train(NORMED, out / "resumed", ranks, watch=_stop_after_2)
        except Stopped as stop:
            saved = sorted(file.name[:9] for file in (out / "resumed" / "checkpoints").iterdir())
            (out / f"stopped-{ranks.rank}").write_text(f"{stop}: {saved}")
        _train(NORMED, out / "resumed", ranks, resume=True)


def _train(recipe: TrainRecipe, folder: Path, ranks: Ranks, **arguments: Any) -> None:
    train(recipe, tiny_split(), CLASSES, folder, ranks=ranks, **arguments)


def _stop_after_2(metrics: dict[str, Any]) -> None:
    """The first process alone is asked to stop."""
    if metrics["epoch"] == 2:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
