"""The training loop: from a recipe and images to a run with a model in it."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from macer.data.arrays import Data, as_split, as_test_split, class_names
from macer.data.file_lists import tell, write_file_lists
from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.losses import completed
from macer.recipes import TrainRecipe
from macer.runs.checkpoints import load_checkpoint
from macer.runs.model_file import ModelCard
from macer.runs.run import Metrics, Run, begin_run, check_same
from macer.runs.seals import sealed
from macer.runs.trained_model import save_model
from macer.system.errors import Mistake
from macer.system.files import locked, remove_leftovers
from macer.system.processes import SINGLE, Ranks
from macer.system.progress import bar, note
from macer.system.signals import catching_signals
from macer.system.user_code import OwnModule, own_modules
from macer.training.arguments import (
    check_memory,
    check_settings_of_loop,
    given_device,
    given_folder,
    given_recipe,
)
from macer.training.held_out import hold_out
from macer.training.preparation import (
    card_of,
    check_images,
    starting_model,
    trainer_of,
    with_data_set,
)
from macer.training.pseudo_labels import with_pseudo_labels, without_hidden_labels
from macer.training.saver import Saver
from macer.training.speed import training_speed
from macer.training.step import Trainer
from macer.training.teachers import Teachers, load_teachers
from macer.training.validation import Validation, validate


def train(
    recipe: TrainRecipe | str,
    data: Data,
    classes: Sequence[str] | None = None,
    folder: Path | str | None = None,
    *,
    value_range: ValueRange = IMAGE_RANGE,
    test: Data | None = None,
    device: torch.device | str = "cpu",
    init: Path | str | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
    validation: Validation = Validation(),  # noqa: B008  immutable
    watch: Callable[[Metrics], None] | None = None,
    ranks: Ranks = SINGLE,
    code: Collection[str] = (),
) -> Path:
    """Train a model and return the path of its file, FOLDER/model.safetensors.

    Killed at any moment and called again with resume=True it ends, on a CPU with the same number
    of threads, in the same weights bit for bit: order, augmentation, noise and the network's own
    randomness are functions of the seed and the step.

    Args:
        recipe: or the name of one, or of a TOML file.
        data: the training images and their labels: a pair of arrays, tensors or lists, a torch
            Dataset, or what `macer.data.load` returns; see `macer.data.arrays.as_split`. The last
            `recipe.held_out` are kept for validation. The run records where they come from,
            whatever `recipe.dataset` is: a data set's name, or "arrays" for images of one's own.
        classes: their names, by label; by default the data set's, or "0", "1", … for arrays.
        folder: of the run; it must be given.
        value_range: the least and the largest value of the inputs, None for any finite floats;
            with another than (0, 1) they are floats of any shape (inputs, …), no images, and σ is
            in their units.
        test: images to certify later, in any form of `data`; nothing is learnt from them. The run
            records their SHA-256.
        device: cpu or cuda.
        init: weights to begin with: a file of torch.save or of safetensors, a run or zoo:NAME. A
            layer of another number of classes begins anew. A resumed run does not read it again.
        checkpoint_seconds: the least time between two checkpoints.
        validation: of the held-out images.
        watch: called with each epoch's metrics.
        ranks: this process among those that train together, each with a part of every batch; the
            first one writes. Batch-norm takes its statistics from a part.
        code: modules that the files of teachers may name, see `load_model`; what the recipe itself
            names is imported, since the caller wrote it.
    """
    check_settings_of_loop(
        resume=resume, checkpoint_seconds=checkpoint_seconds, validation=validation, watch=watch
    )
    recipe, run = given_recipe(recipe, code=code), Run(given_folder(folder))
    device = given_device(device)
    split = as_split(data, value_range)
    names = class_names(classes, split)
    test_sha256 = None if test is None else fingerprint(as_test_split(test, split, names))
    recipe = with_data_set(recipe, split, run, resume=resume)
    check_images(split, recipe)
    training, held_out = hold_out(split, recipe)
    training = without_hidden_labels(training, recipe)
    check_memory(recipe, split.images.shape[1:], device)
    card = card_of(recipe, training, names)
    data_sha256 = fingerprint(split)
    start = starting_model(init, recipe, card, run, data_sha256, training, resume=resume)
    teachers = load_teachers(recipe, card, device, code=code)
    trainer = trainer_of(recipe, start, training, teachers, device, ranks)
    # As they are now: they may be edited meanwhile.
    own = own_modules(recipe.model, recipe.loss.name, recipe.dataset)
    models = {field: teacher.sha256 for field, teacher in teachers.items()}

    def begin_run_and_lock() -> None:
        begin_run(
            run.folder, recipe, data_sha256, test_sha256, resume=resume, models_sha256=models,
            init=start.record, code=own, complete=completed,
        )  # fmt: skip
        stack.enter_context(locked(run.folder))  # only then is no other process writing
        inputs = {"data_sha256": data_sha256, "models_sha256": models}
        check_same(run, recipe, inputs, completed)  # one might have written a moment ago
        _tidy(run, split)

    with ExitStack() as stack:
        ranks.run_on_first(begin_run_and_lock)
        _add_pseudo_labels(trainer, teachers)
        saver = Saver(run, trainer, _restore(run, trainer), checkpoint_seconds)
        if start.read:
            saver.save()  # from here on the run is complete without the file
        with _memory_for(recipe):
            _loop(trainer, saver, held_out, validation, watch)
        saver.save()
        ranks.run_on_first(lambda: _finish(run, trainer, card, saver.metrics, own))
    return run.model


def _tidy(run: Run, split: Split) -> None:
    """Remove what a killed process left; write and tell which files were read."""
    remove_leftovers(run.folder)
    remove_leftovers(run.checkpoints)
    tell(split, write_file_lists(split, run.folder, "train"))


def _add_pseudo_labels(trainer: Trainer, teachers: Teachers) -> None:
    """Label the images that have no labels, if the recipe names a model to do so."""
    if first := teachers.get("pseudo"):
        recipe = trainer.recipe
        note(f"labelling {len(trainer.images) - recipe.labelled} images by {recipe.pseudo}")
        trainer.labels = with_pseudo_labels(trainer.labels, trainer.images, first.model, recipe)
        trainer.ranks.copy_from_first(trainer.labels)


@contextmanager
def _memory_for(recipe: TrainRecipe) -> Iterator[None]:
    """Say what to do when a GPU's memory is full."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise Mistake(
            f"batch and k must fit the GPU's memory, got {recipe.batch} and {recipe.k}; lower "
            "one of them"
        ) from None


def _loop(
    trainer: Trainer,
    saver: Saver,
    held_out: Split | None,
    validation: Validation,
    watch: Callable[[Metrics], None] | None,
) -> None:
    """Train epoch by epoch and record each; save at intervals, and when a signal asks to stop."""
    what, done = f"training {saver.run.folder.name}", trainer.step * trainer.samples
    with (
        catching_signals() as signals,
        bar(what, trainer.all_samples, "samples", done) as advance,
    ):
        while trainer.epoch < trainer.recipe.epochs:
            started, first_step = time.monotonic(), trainer.step
            for _ in trainer.rest_of_epoch():
                advance(trainer.samples)
                if not trainer.at_end_of_epoch:  # at its end the epoch is recorded first
                    saver.save_if_due(signals)
            samples = (trainer.step - first_step) * trainer.samples
            metrics = _metrics(trainer, saver)  # waits for the device
            metrics["samples_per_second"] = samples / (time.monotonic() - started)
            trainer.ranks.run_on_first(
                partial(_close_epoch, trainer, saver, metrics, held_out, validation, watch)
            )
            saver.save_if_due(signals)


def _metrics(trainer: Trainer, saver: Saver) -> Metrics:
    """The epoch's metrics; a training that failed in its first epoch leaves nothing to go on."""
    try:
        return trainer.close_epoch()
    except Mistake:
        if trainer.epoch == 1:
            trainer.ranks.run_on_first(saver.forget)
        raise


def _close_epoch(
    trainer: Trainer,
    saver: Saver,
    metrics: Metrics,
    held_out: Split | None,
    validation: Validation,
    watch: Callable[[Metrics], None] | None,
) -> None:
    """Validate on the held-out images if that is due, and record the epoch."""
    metrics |= _validated(trainer, held_out, validation)
    saver.record(metrics)
    if watch:
        watch(metrics)


def _validated(trainer: Trainer, held_out: Split | None, validation: Validation) -> Metrics:
    """The metrics of the held-out images, if they are due after this epoch."""
    last = trainer.epoch == trainer.recipe.epochs
    if held_out is None or not (last or trainer.epoch % validation.every == 0):
        return {}
    return validate(
        trainer.averaged_model(),
        held_out,
        trainer.recipe,
        samples=validation.samples,
        device=trainer.device,
    )


def _finish(
    run: Run,
    trainer: Trainer,
    card: ModelCard,
    metrics: list[Metrics],
    own: Sequence[OwnModule],
) -> None:
    """Write the model, and its hash, speed and date into the manifest."""
    sha256 = save_model(run.model, trainer.weights(), card)
    manifest = run.read_manifest()
    if manifest.get("status") != "trained":  # a finished run keeps what it says of its training
        manifest["date"] = datetime.now(UTC).date().isoformat()
        manifest["device"] = _device_name(trainer.device)
        manifest["processes"] = trainer.ranks.count
        manifest["speed"] = training_speed(
            trainer.recipe, card, metrics, trainer.device, devices=trainer.ranks.count
        )
    if own:
        manifest["code"] = sealed(own, sha256)
    run.write_manifest(manifest | {"status": "trained", "weights_sha256": sha256})


def _restore(run: Run, trainer: Trainer) -> list[Metrics]:
    """Bring the trainer to the newest checkpoint; return the metrics of the epochs before it."""
    found = load_checkpoint(run)
    if found is None:
        return []
    tensors, state, damaged = found
    for path in damaged:
        note(f"{path} is damaged; continuing from the one before it")
    trainer.restore(tensors, state)
    note(f"continuing {run.folder} at step {trainer.step}, epoch {trainer.epoch}")
    return [line for line in run.read_metrics() if line["step"] <= trainer.step]


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {torch.get_num_threads()} threads"
