"""Checkpoints and metrics of a training, written at intervals and before it stops."""

import json
import signal
import time
from dataclasses import dataclass

from macer.runs.checkpoints import save_checkpoint
from macer.runs.run import Metrics, Run
from macer.system.errors import Stopped
from macer.system.files import write_atomically
from macer.training.step import Trainer


@dataclass
class Saver:
    """Writes checkpoints and metrics; on resuming, metrics after the checkpoint are dropped."""

    run: Run
    trainer: Trainer
    metrics: list[Metrics]
    seconds: float
    last: float = 0.0

    def __post_init__(self) -> None:
        self.last = time.monotonic()

    def save_if_due(self, signals: list[int]) -> None:
        """Save if the last checkpoint is old enough; save and stop if any process got a signal."""
        asked = self.trainer.ranks.any(bool(signals))
        if asked:
            # No process ends before it is saved: torchrun would then end the others.
            self.trainer.ranks.run_on_first(self.save)
            number = signals[0] if signals else signal.SIGTERM
            raise Stopped(number, f"stopped at step {self.trainer.step}; the state is saved")
        if time.monotonic() - self.last >= self.seconds:
            self.save()

    def save(self) -> None:
        """Save now, if this is the process that writes."""
        if self.trainer.ranks.first:
            save_checkpoint(self.run, *self.trainer.state())
        self.last = time.monotonic()

    def forget(self) -> None:
        """Remove the checkpoints; the folder is then free for another training."""
        for file in self.run.checkpoints.glob("*.safetensors"):
            file.unlink()

    def record(self, line: Metrics) -> None:
        """Add an epoch's metrics."""
        self.metrics.append(line)
        text = "".join(json.dumps(metrics) + "\n" for metrics in self.metrics)
        write_atomically(self.run.metrics, text.encode())
