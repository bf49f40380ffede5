"""What torchrun starts twice, and again after one is killed: a training that always resumes."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from tiny_models import CLASSES, tiny_split
from two_processes import NORMED

from macer.system.processes import joined
from macer.training.loop import train


def main(out: Path) -> None:
    """Train; in the first life the first process kills the other one in the middle."""
    life = os.environ["TORCHELASTIC_RESTART_COUNT"]
    (out / f"pid-{life}-{os.environ['RANK']}").write_text(str(os.getpid()))

    def kill_the_other(metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 2 and life == "0":
            os.kill(int((out / "pid-0-1").read_text()), signal.SIGKILL)

    with joined(torch.device("cpu")) as ranks:
        train(
            NORMED, tiny_split(), CLASSES, out / "run", resume=True, checkpoint_seconds=0.0,
            watch=kill_the_other, ranks=ranks,
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
