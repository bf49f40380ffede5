"""Checkpoints of a training: the newest two generations, each known to be whole by its hash."""

import hashlib
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from macer.models.weights import Tensors
from macer.runs.model_file import plain_tensors
from macer.runs.run import Run
from macer.system.errors import Mistake
from macer.system.files import read_file, write_atomically

GENERATIONS = 2

LARGEST_CHECKPOINT = 1 << 36  # bytes, of what training itself has written


def save_checkpoint(run: Run, tensors: Tensors, state: dict[str, int]) -> None:
    """Add a generation and remove those beyond the newest two.

    The file's name ends in the hash of its content, so that a damaged one is known as such.
    """
    metadata = {name: str(value) for name, value in state.items()}
    content = save_tensors(plain_tensors(tensors), metadata)
    digest = hashlib.sha256(content).hexdigest()[:16]
    write_atomically(run.checkpoints / f"{state['step']:09d}-{digest}.safetensors", content)
    for old in _generations(run)[GENERATIONS:]:
        old.unlink()


def has_checkpoint(run: Run) -> bool:
    """Whether a training has saved its state, damaged or not."""
    return bool(_generations(run))


def load_checkpoint(run: Run) -> tuple[Tensors, dict[str, int], list[Path]] | None:
    """The newest generation that is undamaged, and the damaged ones passed over; None if new."""
    damaged: list[Path] = []
    generations = _generations(run)
    for path in generations:
        content = read_file(path, limit=LARGEST_CHECKPOINT)
        if hashlib.sha256(content).hexdigest()[:16] != path.stem.partition("-")[2]:
            damaged.append(path)
            continue
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        return load_tensors(content), {k: int(v) for k, v in metadata.items()}, damaged
    if damaged:
        names = ", ".join(str(path) for path in damaged)
        raise Mistake(
            f"every checkpoint is damaged: {names}; "
            "delete the run's folder to train again from the start"
        )
    return None


def _generations(run: Run) -> list[Path]:
    """Checkpoint files, newest first."""
    return sorted(run.checkpoints.glob("*-*.safetensors"), reverse=True)
