"""The training loop: from a recipe and images to a run with a model in it."""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from macer.data.arrays import Data, as_split, class_names
from macer.data.fingerprint import channel_statistics, fingerprint
from macer.data.image_files import ImageFiles
from macer.data.sets import DATASETS, Split
from macer.errors import Mistake
from macer.losses import completed
from macer.recipes import TrainRecipe
from macer.runs.checkpoints import load_checkpoint
from macer.runs.model_file import ModelCard
from macer.runs.run import Metrics, Run, open_run, save_model
from macer.runs.seals import sealed
from macer.smoothing.streams import Purpose, stream
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
    device: torch.device | str = "cpu",
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
        device: cpu or cuda.
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
    split = as_split(data)
    names = class_names(classes, split)
    recipe = _with_data_set(recipe, split, run, resume=resume)
    _check_images(split, recipe)
    training, held_out = hold_out(split, recipe)
    training = without_hidden_labels(training, recipe)
    check_memory(recipe, split.images.shape[1:], device)
    card = _card(recipe, training, names)
    teachers = load_teachers(recipe, card, device, code=code)
    trainer = _trainer(recipe, card, training, teachers, device, ranks)
    own = own_modules(
        recipe.model, recipe.loss.name
    )  # as they are now: they may be edited meanwhile
    with ExitStack() as stack:

        def open_and_lock() -> None:
            models = {field: teacher.sha256 for field, teacher in teachers.items()}
            open_run(
                run.folder, recipe, fingerprint(split),
                resume=resume, models_sha256=models, code=own, complete=completed,
            )  # fmt: skip
            stack.enter_context(locked(run.folder))  # only then is no other process writing
            remove_leftovers(run.folder)
            remove_leftovers(run.checkpoints)

        ranks.run_on_first(open_and_lock)
        _add_pseudo_labels(trainer, teachers)
        saver = Saver(run, trainer, _restore(run, trainer), checkpoint_seconds)
        try:
            _loop(trainer, saver, held_out, validation, watch)
        except torch.OutOfMemoryError:
            raise Mistake(
                f"batch and k must fit the GPU's memory, got {recipe.batch} and {recipe.k}; lower "
                "one of them"
            ) from None
        saver.save()
        ranks.run_on_first(lambda: _finish(run, trainer, card, saver.metrics, own))
    return run.model


def _with_data_set(recipe: TrainRecipe, split: Split, run: Run, *, resume: bool) -> TrainRecipe:
    """The recipe with the name of the data set that the images come from.

    A resumed run keeps the recipe's own name if it began with it; that its images are the same is
    checked by their hash.
    """
    began = run.read_manifest()["recipe"] if resume and run.manifest.is_file() else None
    if began and began.get("dataset") == recipe.dataset:
        return recipe
    return replace(recipe, dataset=split.dataset)


def _trainer(
    recipe: TrainRecipe,
    card: ModelCard,
    training: Split,
    teachers: Teachers,
    device: torch.device,
    ranks: Ranks,
) -> Trainer:
    torch.manual_seed(int(stream(recipe.seed, Purpose.INITIALISATION).integers(2**63)))
    teacher = teachers["teacher"].model if "teacher" in teachers else None
    return Trainer(recipe, card.build(), training, device, teacher=teacher, ranks=ranks)


def first_trainer(
    recipe: TrainRecipe,
    split: Split,
    classes: Sequence[str],
    *,
    device: torch.device,
    code: Collection[str] = (),
) -> Trainer:
    """The trainer as `train` begins with it, of a recipe with all settings; nothing is written."""
    _check_images(split, recipe)
    training, _ = hold_out(split, recipe)
    training = without_hidden_labels(training, recipe)
    check_memory(recipe, split.images.shape[1:], device)
    card = _card(recipe, training, tuple(classes))
    teachers = load_teachers(recipe, card, device, code=code)
    return _trainer(recipe, card, training, teachers, device, SINGLE)


def _add_pseudo_labels(trainer: Trainer, teachers: Teachers) -> None:
    """Label the images that have no labels, if the recipe names a model to do so."""
    if first := teachers.get("pseudo"):
        recipe = trainer.recipe
        note(f"labelling {len(trainer.images) - recipe.labelled} images by {recipe.pseudo}")
        trainer.labels = with_pseudo_labels(trainer.labels, trainer.images, first.model, recipe)
        trainer.ranks.copy_from_first(trainer.labels)


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
            metrics = trainer.close_epoch()  # waits for the device
            metrics["samples_per_second"] = samples / (time.monotonic() - started)
            trainer.ranks.run_on_first(
                partial(_close_epoch, trainer, saver, metrics, held_out, validation, watch)
            )
            saver.save_if_due(signals)


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
    """Write the model, and its hash and speed into the manifest."""
    sha256 = save_model(run.model, trainer.weights(), card)
    manifest = run.read_manifest()
    if manifest.get("status") != "trained":  # a finished run keeps what it says of its training
        manifest["device"] = _device_name(trainer.device)
        manifest["processes"] = trainer.ranks.count
        manifest["speed"] = training_speed(
            trainer.recipe, card, metrics, trainer.device, devices=trainer.ranks.count
        )
    if own:
        manifest["code"] = sealed(own, sha256)
    run.write_manifest(manifest | {"status": "trained", "weights_sha256": sha256})


def _check_images(split: Split, recipe: TrainRecipe) -> None:
    """Refuse what can be done only with images in memory, or only with images in files."""
    if isinstance(split.images, ImageFiles):
        for name in ("crop", "drop_epoch", "pseudo"):
            if value := getattr(recipe, name):
                raise Mistake(f"{name} must be left out with {recipe.dataset}, got {value}")
    elif recipe.resized_crop:
        raise Mistake(
            f"resized_crop must be 0 with {recipe.dataset}, got {recipe.resized_crop}; use crop"
        )
    size = min(split.images.shape[2:])
    if recipe.crop > size:
        raise Mistake(f"crop must be at most the images' size, {size}, got {recipe.crop}")


def _card(recipe: TrainRecipe, split: Split, classes: tuple[str, ...]) -> ModelCard:
    channels = split.images.shape[1]
    mean, std = (0.0,) * channels, (1.0,) * channels
    if recipe.normalise:
        known = DATASETS.get(recipe.dataset)
        if known and known.mean and known.std:
            mean, std = known.mean, known.std
        else:
            mean, std = channel_statistics(split)
    shape = tuple(int(size) for size in split.images.shape[1:])
    return ModelCard(
        architecture=recipe.model,
        classes=classes,
        shape=(shape[0], shape[1], shape[2]),
        mean=mean,
        std=std,
        sigma=recipe.sigma,
        dataset=recipe.dataset,
    )


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
