"""Show metrics beside metrics.jsonl: lines on the screen; TensorBoard and wandb on request."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from macer.runs.run import Metrics, Run
from macer.system.errors import Mistake
from macer.system.progress import note
from macer.system.text import rate_text


@contextmanager
def watching(
    folder: Path | str, tensorboard: bool, wandb: bool = False
) -> Iterator[Callable[[Metrics], None]]:
    """A function to call with each epoch's metrics.

    Args:
        folder: of the run.
    """
    folder = Path(folder)
    with ExitStack() as stack:
        watchers: list[Callable[[Metrics], None]] = [_print]
        if tensorboard:
            watchers.append(_to_tensorboard(folder, stack))
        if wandb:
            watchers.append(_to_wandb(folder, stack))

        def watch(metrics: Metrics) -> None:
            for each in watchers:
                each(metrics)

        yield watch


def _to_tensorboard(folder: Path, stack: ExitStack) -> Callable[[Metrics], None]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise _not_installed("tensorboard") from error

    @cache
    def writer() -> Any:  # made late: it writes into the run's folder, which must exist
        return stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

    def watch(metrics: Metrics) -> None:
        for name, value in _figures(metrics).items():
            writer().add_scalar(name, value, metrics["step"])

    return watch


def _to_wandb(folder: Path, stack: ExitStack) -> Callable[[Metrics], None]:
    """Weights & Biases: into RUN/wandb, and to its service only if there is a key for it.

    $WANDB_MODE decides, as everywhere with wandb; without it, $WANDB_API_KEY does.
    """
    try:
        import wandb
    except ImportError as error:
        raise _not_installed("wandb") from error
    by_key = "online" if os.environ.get("WANDB_API_KEY") else "offline"

    @cache
    def run() -> Any:  # made late, as TensorBoard's writer
        return stack.enter_context(
            wandb.init(
                project="macer",
                name=folder.name,
                dir=str(folder),
                mode=os.environ.get("WANDB_MODE", by_key),
                config=Run(folder).read_manifest()["recipe"],
            )
        )

    def watch(metrics: Metrics) -> None:
        run().log(_figures(metrics), step=metrics["step"])

    return watch


def _figures(metrics: Metrics) -> Metrics:
    """What changes with the steps."""
    return {name: metrics[name] for name in metrics.keys() - {"step", "epoch"}}


def _not_installed(name: str) -> Mistake:
    return Mistake(f"{name} must be installed for --{name}: pip install 'torch-macer[{name}]'")


def _print(metrics: Metrics) -> None:
    """Print one line per epoch."""
    parts = [f"epoch {metrics['epoch']}", f"loss {metrics['loss']:.4f}"]
    if metrics["skipped_steps"]:
        parts.append(f"{metrics['skipped_steps']} steps skipped: loss not finite")
    if "validation_accuracy" in metrics:
        parts.append(f"held-out accuracy {metrics['validation_accuracy']:.3f}")
        parts.append(f"radius {metrics['validation_radius']:.3f}")
    note(", ".join([*parts, f"{rate_text(metrics['samples_per_second'])} samples/s"]))
