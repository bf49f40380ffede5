"""Recipes against each other: the same seeds, the same images, paired differences."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from macer.certification.settings import check_settings
from macer.data.selection import Selection
from macer.data.sets import Rules, Split, load
from macer.experiments.beforehand import look_ahead
from macer.experiments.examination import Examination, certified
from macer.losses import completed
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import Difference, average_certified_radius, error_of_mean
from macer.reporting.seeds import contributions
from macer.reporting.tables import images_of_log
from macer.reporting.texts import setting, signed_with_error, thousands, with_error
from macer.runs.run import Run
from macer.runs.trained_model import load_model
from macer.system.errors import Mistake
from macer.system.progress import bar, note
from macer.training.held_out import check_teachers
from macer.training.loop import train
from macer.training.speed import count_passes, epoch_seconds
from macer.training.teachers import TEACHERS, load_teachers, models_named
from macer.training.validation import Validation

# Images of the short training in which forward passes are counted.
COUNTED_IMAGES = 8


@dataclass(frozen=True)
class Entry:
    """The certificates and costs of one recipe over all seeds."""

    name: str
    recipe: TrainRecipe
    logs: tuple[CertificateLog, ...]  # one for each seed, of the same images
    passes: float  # forward passes per image in an epoch
    seconds: float  # of an epoch


def compare(
    recipes: Mapping[str, TrainRecipe],
    out: Path,
    *,
    seeds: int,
    settings: CertifyRecipe,
    data: Path | None,
    images: Selection,
    device: torch.device,
    held_out: int = 0,
    code: Collection[str] = (),
    rules: Rules = Rules(),  # noqa: B008  immutable
) -> list[Entry]:
    """Train each recipe with seeds 0, 1 …, certify each model, and return an entry per recipe.

    A run is OUT/NAME/seed-S. Finished runs are kept, and unfinished ones are continued.

    Args:
        recipes: of one data set, by the names of their runs.
        held_out: keep at least this many of the last training images out of every training, and
            certify them.
        code: modules that the files of teachers may name, see `load_model`.
        rules: for a folder of photographs.
    """
    if held_out < 0:
        raise Mistake(f"held_out must be at least 0, got {held_out}")
    if seeds < 1:
        raise Mistake(f"seeds must be at least 1, got {seeds}")
    if out.exists() and not out.is_dir():
        raise Mistake(f"out must be a folder, got the file {out}")
    dataset = _common_dataset(recipes)
    recipes = {
        name: completed(replace(recipe, held_out=max(recipe.held_out, held_out)))
        for name, recipe in recipes.items()
    }
    for recipe in recipes.values():
        check_settings(sigma=recipe.sigma, n0=settings.n0, n=settings.n, alpha=settings.alpha)
    training = load(dataset, "train", data, rules=rules)
    split = training if held_out else load(dataset, "test", data, rules=rules)
    exam = Examination(split, images, settings, held_out=held_out)
    exam.indices()  # refuses mistakes before hours of training
    if held_out:
        for recipe in recipes.values():
            check_teachers(recipe, set(TEACHERS) - set(teachers_among(recipe, recipes)))
    planned = {
        name: {
            out / name / f"seed-{seed}": _of_seed(recipes[name], recipes, seed, out)
            for seed in range(seeds)
        }
        for name in _teachers_first(recipes)
    }
    look_ahead(
        planned, training, exam, device, code,
        untrained={name: teachers_among(recipe, recipes) for name, recipe in recipes.items()},
    )  # fmt: skip
    entries = {}
    for name, runs in planned.items():
        for folder, recipe in runs.items():
            note(f"{name}, seed {recipe.seed}")
            train(
                recipe, training, training.classes or None, folder,
                device=device, resume=True, validation=Validation(every=recipe.epochs), code=code,
            )  # fmt: skip
        entries[name] = Entry(
            name,
            recipes[name],
            tuple(certified(folder, dataset, exam, device) for folder in runs),
            passes_of(next(iter(runs.values())), training, next(iter(runs)), code),
            float(np.median([_seconds(recipes[name], folder) for folder in runs])),
        )
    return [entries[name] for name in recipes]


def _common_dataset(recipes: Mapping[str, TrainRecipe]) -> str:
    datasets = sorted({recipe.dataset for recipe in recipes.values()})
    if len(datasets) != 1:
        raise Mistake(f"recipes must be of one data set, got {', '.join(datasets) or 'no recipe'}")
    return datasets[0]


def _teachers_first(recipes: Mapping[str, TrainRecipe]) -> list[str]:
    """The names of the recipes; those that learn from another recipe come last."""
    return sorted(recipes, key=lambda name: bool(teachers_among(recipes[name], recipes)))


def teachers_among(recipe: TrainRecipe, recipes: Mapping[str, TrainRecipe]) -> dict[str, str]:
    """The fields of a recipe that name a run of this comparison, as runs/NAME."""
    paths = {field: Path(name) for field, name in models_named(recipe).items()}
    return {
        field: path.name
        for field, path in paths.items()
        if path.parent == Path("runs") and path.name in recipes
    }


def _of_seed(
    recipe: TrainRecipe, recipes: Mapping[str, TrainRecipe], seed: int, out: Path
) -> TrainRecipe:
    """The recipe with a seed; a teacher among the recipes is its run with the same seed."""
    teachers: dict[str, Any] = {
        field: str(out / name / f"seed-{seed}")
        for field, name in teachers_among(recipe, recipes).items()
    }
    return recipe.changed(seed=seed, **teachers)


def passes_of(recipe: TrainRecipe, training: Split, run: Path, code: Collection[str] = ()) -> float:
    """Count the images that the network and its teacher see per image in an epoch."""
    few = training.part(0, COUNTED_IMAGES)
    model, card = load_model(run)
    teachers = load_teachers(recipe, card, torch.device("cpu"), code=code)
    teacher = teachers["teacher"].model if "teacher" in teachers else None
    with bar("counting passes", 1, "recipes", transient=True):  # minutes of a large network
        return count_passes(recipe, few, model, teacher).images


def _seconds(recipe: TrainRecipe, run: Path) -> float:
    """Seconds of the run's median epoch."""
    return float(np.median(epoch_seconds(Run(run).read_metrics(), recipe)))


@dataclass(frozen=True)
class Score:
    """A recipe's figures, over the images of all its seeds."""

    name: str
    sigma: float
    acr: float
    standard_error: float
    difference: Difference | None  # to the first recipe; None for the first
    acrs: tuple[float, ...]  # of the seeds
    images: int
    n: int | None
    alpha: float | None
    epochs: int
    passes: float
    seconds: float


def scores(entries: Sequence[Entry]) -> list[Score]:
    """Each recipe's figures."""
    return [_score(entry, entries[0]) for entry in entries]


def _score(entry: Entry, first: Entry) -> Score:
    values = contributions(entry.logs)
    gain = values - contributions(first.logs)
    difference = Difference(float(gain.mean()), error_of_mean(gain), len(gain))
    return Score(
        name=entry.name,
        sigma=entry.recipe.sigma,
        acr=float(values.mean()),
        standard_error=error_of_mean(values),
        difference=None if entry is first else difference,
        acrs=tuple(average_certified_radius(log) for log in entry.logs),
        images=len(values),
        n=entry.logs[0].n,
        alpha=entry.logs[0].alpha,
        epochs=entry.recipe.epochs,
        passes=entry.passes,
        seconds=entry.seconds,
    )


def cells(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """The comparison's header and rows as text."""
    header = ["recipe", "σ", "ACR", "ACR − first's", "seeds' ACRs", "epochs", "passes", "time"]
    rows = [
        [
            score.name,
            setting(score.sigma),
            with_error(score.acr, score.standard_error),
            "" if score.difference is None else signed_with_error(*score.difference[:2]),
            f"{min(score.acrs):.3f}…{max(score.acrs):.3f}",
            f"{score.epochs:,}",
            f"{score.passes:.1f}",
            f"{score.seconds / entries[0].seconds:.1f}",
        ]
        for score in scores(entries)
    ]
    return header, rows


def notes(entries: Sequence[Entry]) -> list[str]:
    """What to know when reading the table."""
    log = entries[0].logs[0]
    which = images_of_log(log)
    images = "Test images" if log.split is None else "Held out:"
    seeds = len(entries[0].logs)
    return [
        f"{images} {which}, n = {thousands(log.n)}, α = {setting(log.alpha)}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}.",
        "± is one standard error over the images, each image's radius averaged over the seeds; "
        "differences are paired.",
        "passes: images that the network sees for each image in an epoch; "
        "time: of an epoch, the first recipe's being 1.",
    ]
