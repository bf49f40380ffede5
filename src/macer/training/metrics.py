"""Show metrics beside metrics.jsonl: lines on the screen, and TensorBoard on request."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from macer.errors import Mistake
from macer.runs.run import Metrics
from macer.system.progress import note
from macer.system.text import rate_text


@contextmanager
def watching(folder: Path, tensorboard: bool) -> Iterator[Callable[[Metrics], None]]:
    """A function to call with each epoch's metrics."""
    if not tensorboard:
        yield _print
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise Mistake(
            "tensorboard must be installed for --tensorboard: pip install torch-macer[tensorboard]"
        ) from error
    with ExitStack() as stack:

        @cache
        def writer() -> Any:  # made late: it writes into the run's folder, which must exist
            return stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

        def watch(metrics: Metrics) -> None:
            _print(metrics)
            for name in metrics.keys() - {"step", "epoch"}:
                writer().add_scalar(name, metrics[name], metrics["step"])

        yield watch


def _print(metrics: Metrics) -> None:
    """Print one line per epoch."""
    parts = [f"epoch {metrics['epoch']}", f"loss {metrics['loss']:.4f}"]
    if metrics["skipped_steps"]:
        parts.append(f"{metrics['skipped_steps']} steps skipped: loss not finite")
    if "validation_accuracy" in metrics:
        parts.append(f"held-out accuracy {metrics['validation_accuracy']:.3f}")
        parts.append(f"radius {metrics['validation_radius']:.3f}")
    note(", ".join([*parts, f"{rate_text(metrics['samples_per_second'])} samples/s"]))
