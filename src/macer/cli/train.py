"""`macer train` and `macer export`: a recipe into a run, a run into a model file."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.config import Dict

from macer.cli.parameters import Code, Data, Device, chosen_device
from macer.cli.printing import Result, print_line
from macer.errors import Mistake
from macer.recipes import CODE_FIELDS, TrainRecipe, Whole, recipe_fields, run_name
from macer.system.processes import joined
from macer.system.user_code import check_admitted


def train(
    recipe: str,
    *,
    fields: TrainRecipe = TrainRecipe(),  # noqa: B008  frozen
    out: Path | None = None,
    data: Data = None,
    code: Code = (),
    resume: bool = False,
    device: Device = "auto",
    checkpoint_seconds: float = 30.0,
    validate_every: Whole = 1,
    validate_samples: Whole = 32,
    tensorboard: bool = False,
) -> Result:
    """Train a model; every field of the recipe can be overridden by its flag.

    Parameters
    ----------
    recipe
        A name that `macer recipes` lists, or a TOML file.
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
    """
    from macer.data.sets import classes_of, load
    from macer.runs.run import Run
    from macer.training.loop import train as train_model
    from macer.training.metrics import watching
    from macer.training.speed import trained_line
    from macer.training.validation import Validation
    from macer.training.votes import ROWS

    if not checkpoint_seconds >= 0:
        raise Mistake(f"checkpoint_seconds must be at least 0, got {checkpoint_seconds}")
    if validate_every < 1:
        raise Mistake(f"validate_every must be at least 1, got {validate_every}")
    if not 1 <= validate_samples <= ROWS:
        raise Mistake(f"validate_samples must be from 1 to {ROWS}, got {validate_samples}")
    folder = out or Path("runs") / run_name(recipe)
    device_ = chosen_device(device)
    with watching(folder, tensorboard) as watch, joined(device_) as ranks:
        train_model(
            fields,
            load(fields.dataset, "train", data),
            classes_of(fields.dataset, data),
            folder,
            device=device_,
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            validation=Validation(validate_every, validate_samples),
            watch=watch,
            ranks=ranks,
            code=code,
        )
    manifest = Run(folder).read_manifest()
    speed = manifest.get("speed", {})
    print_line(trained_line(str(folder), speed))
    source = f" --data {shlex.quote(str(data))}" if data else ""
    other = "; the images that it held out, with --held-out" if fields.held_out else ""
    print_line(f"certify it with: macer certify {shlex.quote(str(folder))}{source}{other}")
    known = ("seconds", "samples_per_second", "matrix_rate", "matrix_share")
    return {
        "run": folder,
        "recipe": recipe,
        "fields": fields,
        "weights_sha256": manifest["weights_sha256"],
        **{name: speed.get(name) for name in known},
    }


def fields_of_recipe(app: App, commands: tuple[str, ...], arguments: Any) -> None:
    """Let the recipe's file give the fields that no flag gives; code only if a flag names it."""
    if not arguments["--recipe"].tokens:
        return
    name = arguments["--recipe"].tokens[0].value
    # As fields of no command: else those named like one, such as attack, would be passed over.
    Dict(recipe_fields(name), source=name)(app, (), arguments)
    code = [token.value for token in arguments["--code"].tokens]
    for field in CODE_FIELDS:
        for token in arguments[f"--{field}"].tokens:
            if token.source != "cli":
                check_admitted(token.value, code, source=f"recipe {name}")


def recipe_of(name: str, *, code: Iterable[str] = ()) -> TrainRecipe:
    """The recipe that `macer train NAME`, with --code for each module, takes."""
    parser = App(default_command=train, config=fields_of_recipe)
    words = [name, *(f"--code={module}" for module in code)]
    _, bound, _ = parser.parse_args(words, exit_on_error=False, print_error=False)
    recipe: TrainRecipe = bound.arguments.get("fields", TrainRecipe())
    return recipe


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
