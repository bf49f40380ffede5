"""The training images that a run held out: settings are chosen by them, not by test images."""

from pathlib import Path

from macer.data import Split, fingerprint
from macer.mistake import Mistake
from macer.recipes import TrainRecipe
from macer.run import Run

FOLDER = "held-out"  # of their certificates, in the run


def hold_out(split: Split, recipe: TrainRecipe) -> tuple[Split, Split | None]:
    """The images to train on and, if any, the last ones to validate on."""
    left = len(split.images) - recipe.held_out
    if left < recipe.batch:
        raise Mistake(
            f"held_out and batch must not exceed the {len(split.images)} training images together, "
            f"got {recipe.held_out} and {recipe.batch}"
        )
    training = Split(split.images[:left], split.labels[:left])
    if not recipe.held_out:
        return training, None
    return training, Split(split.images[left:], split.labels[left:])


def first_held_out(target: Path | str, split: Split) -> int:
    """The number of the first training image that a run held out; the others follow it.

    Args:
        split: the training images, which must be those of the run.
    """
    run = Run(Path(target))
    if not run.folder.is_dir():
        raise Mistake(
            f"held_out needs a run folder, which tells what it held out, got {target}; name the "
            "run, or leave out --held-out"
        )
    held_out = run.read_recipe().held_out
    if not held_out:
        raise Mistake(
            f"held_out needs a run that held images out, got {target}; train it with --held-out N"
        )
    expected, found = run.read_manifest()["data_sha256"], fingerprint(split)
    if found != expected:
        raise Mistake(
            f"held_out needs the training images of {target}, of SHA-256 {expected[:16]}…, got "
            f"{found[:16]}…; correct --dataset or --data"
        )
    return len(split.images) - held_out
