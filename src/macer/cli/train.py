"""`macer train` and `macer export`: a recipe into a run, a run into a model file."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from macer.cli.parameters import (
    AllowDuplicates,
    Code,
    Data,
    Device,
    Init,
    Photographs,
    Size,
    SkipDamaged,
    Threads,
    computing_device,
)
from macer.cli.printing import Result, print_line
from macer.recipes import Loss, TrainRecipe, Whole, recipe_names, run_name
from macer.recipes.fields import MACER
from macer.runs.names import MANIFEST
from macer.system.errors import Mistake
from macer.system.processes import joined


def train(
    recipe: str,
    *,
    fields: TrainRecipe = TrainRecipe(),  # noqa: B008  frozen
    loss: str | None = None,
    settings: Annotated[Any, Parameter(parse=False)] = None,
    out: Path | None = None,
    data: Data = None,
    size: Size = None,
    skip_damaged: SkipDamaged = False,
    allow_duplicates: AllowDuplicates = False,
    code: Code = (),
    init: Init = None,
    resume: bool = False,
    device: Device = "auto",
    threads: Threads = None,
    checkpoint_seconds: float = 30.0,
    validate_every: Whole = 1,
    validate_samples: Whole = 32,
    tensorboard: bool = False,
    wandb: bool = False,
) -> Result:
    """Train a model; flags override fields of the recipe and settings of its loss.

    `macer train RECIPE --help` shows the settings of that recipe's loss.

    Parameters
    ----------
    recipe
        A name that `macer recipes` lists, or a TOML file; with --resume also the folder of a run.
    loss
        Another loss, with its own defaults: a name, or package.module:function.
    out
        Folder of the run; runs/RECIPE by default.
    resume
        Continue the run where it stopped, or begin it.
    checkpoint_seconds
        Least time between two checkpoints.
    validate_every
        Epochs between two looks at the held-out images; the last epoch always has one.
    validate_samples
        Noisy copies of each of them, whose votes give an estimate of its radius.
    tensorboard
        Write TensorBoard events beside metrics.jsonl.
    wandb
        Give the metrics to Weights & Biases too: into RUN/wandb, and online with $WANDB_API_KEY.
    """
    from macer.data.sets import load, sized
    from macer.losses import completed
    from macer.training.loop import train as train_model
    from macer.training.metrics import watching
    from macer.training.validation import Validation
    from macer.training.votes import ROWS

    if not checkpoint_seconds >= 0:
        raise Mistake(f"checkpoint_seconds must be at least 0, got {checkpoint_seconds}")
    if validate_every < 1:
        raise Mistake(f"validate_every must be at least 1, got {validate_every}")
    if not 1 <= validate_samples <= ROWS:
        raise Mistake(f"validate_samples must be from 1 to {ROWS}, got {validate_samples}")
    folder = _folder(recipe, out, resume)
    asked = completed(replace(fields, loss=Loss(loss or MACER.name, **vars(settings))))
    asked = replace(asked, dataset=sized(asked.dataset, size))
    chosen = computing_device(device, threads)
    photographs = Photographs(skip_damaged=skip_damaged, allow_duplicates=allow_duplicates)
    with watching(folder, tensorboard, wandb) as watch, joined(chosen) as ranks:
        split = load(asked.dataset, "train", data, rules=photographs.rules())
        train_model(
            asked,
            split,
            split.classes or None,
            folder,
            device=chosen,
            init=init,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            validation=Validation(validate_every, validate_samples),
            watch=watch,
            ranks=ranks,
            code=code,
        )
    source = f" --data {shlex.quote(str(data))}" if data else ""
    return {"run": folder, "recipe": recipe, "fields": asked.flat()} | _print_result(
        folder, asked, source + photographs.flags()
    )


def is_run(recipe: str) -> bool:
    """Whether a recipe's name is the folder of a run; the recipes of macer come first."""
    return recipe not in recipe_names() and (Path(recipe) / MANIFEST).is_file()


def _folder(recipe: str, out: Path | None, resume: bool) -> Path:
    """The folder of the run: a given one, that of the run to continue, or runs/RECIPE."""
    if not is_run(recipe):
        return out or Path("runs") / run_name(recipe)
    if not resume:
        raise Mistake(f"{recipe} holds a run already; continue it with --resume")
    if out is not None:
        raise Mistake(f"out must be left out to continue the run {recipe}, got {out}")
    return Path(recipe)


def _print_result(folder: Path, asked: TrainRecipe, source: str) -> Result:
    """Print how fast a run was trained and what to type next; return its weights and speed."""
    from macer.runs.run import Run
    from macer.training.speed import trained_line

    manifest = Run(folder).read_manifest()
    speed = manifest.get("speed", {})
    print_line(trained_line(str(folder), speed))
    other = "; the images that it held out, with --held-out" if asked.held_out else ""
    print_line(f"certify it with: macer certify {shlex.quote(str(folder))}{source}{other}")
    known = ("seconds", "samples_per_second", "matrix_rate", "matrix_share")
    speeds = {name: speed.get(name) for name in known}
    return {"weights_sha256": manifest["weights_sha256"]} | speeds


def export(run: Path, /, *, out: Path, overwrite: bool = False, code: Code = ()) -> Result:
    """Write a model into a file of half the size, weights rounded to float16.

    Parameters
    ----------
    run
        A run folder, a model file or zoo:NAME.
    out
        The file, which every command takes as a model.
    overwrite
        Replace the file if there is one.
    """
    from macer.runs.export import export_model

    sha256 = export_model(run, out, overwrite=overwrite, code=code)
    size = out.stat().st_size
    print_line(
        f"exported {out}: {size:,} bytes, SHA-256 {sha256}; "
        "its certificates are those of the weights rounded to float16"
    )
    return {"out": out, "bytes": size, "weights_sha256": sha256}
