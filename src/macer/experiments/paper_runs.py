"""The paper's rows reproduced: trained and certified, or read from the runs that are there."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from macer.certification.settings import check_settings
from macer.data.selection import Selection
from macer.data.sets import Split, classes_of, load
from macer.experiments.beforehand import check_certificates, extent, left
from macer.experiments.estimate import measured
from macer.experiments.examination import Examination, certified
from macer.experiments.paper import ImagesOf, Item, Row, asked_recipe, differing, papers_images
from macer.experiments.paper_logs import (
    ShownLog,
    differences_text,
    shipped_logs,
    sources_of,
    why_not,
)
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.reporting.logs import CertificateLog, read_log, select
from macer.runs.names import TABLE, soft_folder
from macer.runs.run import Run
from macer.system.errors import Mistake
from macer.system.progress import note
from macer.system.text import counted
from macer.training.loop import train


@dataclass(frozen=True)
class Reproduction:
    """A row of the paper, and our certificates and training of it."""

    row: Row
    log: CertificateLog | None = None  # None: no certificates of these images
    soft: tuple[CertificateLog, ...] = ()  # by Bernstein's bound, one for each β
    epochs: int | None = None  # of our training
    speed: Mapping[str, float] = field(default_factory=dict)  # of our training
    remark: str = ""  # what to know of our training, or why there are no certificates
    shipped: tuple[ShownLog, ...] = ()  # where there are none: what comes with macer
    why: str = ""  # why no training of ours is as the paper has it

    def shown(self) -> tuple[ShownLog, ...]:
        """What stands beside the paper's figures: the run's certificates, or what macer has."""
        if self.log is None:
            return self.shipped
        seconds = self.speed.get("seconds")
        return (ShownLog("here", self.log, "", "", self.epochs, seconds, soft=self.soft),)


def find(item: Item, runs: Path, images: ImagesOf = papers_images) -> list[Reproduction]:
    """The reproduction of each of the item's rows, from the runs under RUNS.

    A row without certificates there has those that come with macer.
    """
    found = [_found(row, runs / row.run(), images, item.soft_betas) for row in item.rows]
    return [one if one.log else _with_shipped_logs(one, item, images) for one in found]


class Count(NamedTuple):
    """How many models an item has, and of how many there are certificates."""

    models: int
    certified: int  # by runs here
    shipped: int  # of the others, in logs that come with macer


def count(item: Item, runs: Path) -> Count:
    """Count the models of an item, without reading what comes with macer."""
    rows = {row.run(): row for row in item.rows}
    here = {
        name
        for name, row in rows.items()
        if _found(row, runs / name, papers_images, item.soft_betas).log
    }
    return Count(
        len(rows),
        len(here),
        sum(bool(sources_of(item, row)) for name, row in rows.items() if name not in here),
    )


def _with_shipped_logs(one: Reproduction, item: Item, images: ImagesOf) -> Reproduction:
    papers, chosen = images is papers_images, images(one.row.train_recipe().dataset)
    return replace(
        one, shipped=shipped_logs(item, one.row, chosen, papers=papers), why=why_not(one.row)
    )


def _found(row: Row, folder: Path, images: ImagesOf, soft_betas: tuple[float, ...]) -> Reproduction:
    recipe = row.train_recipe()
    if not (folder / TABLE).is_file():
        return Reproduction(row)
    chosen = images(recipe.dataset)
    try:
        log = select(read_log(folder), chosen)
        if log.sigma not in (None, recipe.sigma):
            raise Mistake(f"{folder} must be of σ = {recipe.sigma:g}, got {log.sigma:g}")
        if log.split is not None:
            raise Mistake(f"{folder} must hold certificates of test images, got {log.split}")
        soft = [soft_folder(folder, beta) for beta in soft_betas]
        logs = tuple(select(read_log(place), chosen) for place in soft if place.is_dir())
        if _certificates_alone(folder):
            return Reproduction(row, log, logs, remark="certificates alone, without their training")
        ours, speed = Run(folder).read_recipe(), Run(folder).read_manifest().get("speed") or {}
        differences = differences_text(differing(ours, recipe))
    except Mistake as mistake:
        return Reproduction(row, remark=str(mistake))
    return Reproduction(row, log, logs, ours.epochs, speed, differences)


def reproduce(
    item: Item,
    runs: Path,
    *,
    settings: CertifyRecipe,
    share: float,
    model: str | None = None,
    images: ImagesOf,
    data: Path | None,
    device: torch.device,
) -> None:
    """Train and certify each row into RUNS; finished runs are kept.

    Certificates without a run are taken as they are.

    Args:
        share: of each recipe's epochs.
        model: the network of all of them in place of the paper's.
    """
    recipes = {
        row.run(): asked_recipe(row, share, model)
        for row in item.rows
        if not _certificates_alone(runs / row.run())
    }
    for run, recipe in recipes.items():
        check_settings(sigma=recipe.sigma, n0=settings.n0, n=settings.n, alpha=settings.alpha)
        _check_same(Run(runs / run), recipe, settings)
    exams = {
        dataset: _examination(dataset, images(dataset), settings, item.soft_betas, data)
        for dataset in dict.fromkeys(recipe.dataset for recipe in recipes.values())
    }
    training = cache(lambda dataset: _training(dataset, data))
    works = [
        left(Run(runs / run), recipe, exams[recipe.dataset].indices())
        for run, recipe in recipes.items()
    ]
    note(extent(works))
    if any(work.epochs or work.images for work in works):
        taken = measured(works, training, settings=settings, betas=item.soft_betas, device=device)
        note(f"measured here, they take {taken}")
    for run, recipe in recipes.items():
        note(f"{run}: {counted(recipe.epochs, 'epoch')}")
        split, classes = training(recipe.dataset)
        train(recipe, split, classes, runs / run, device=device, resume=True)
        certified(runs / run, recipe.dataset, exams[recipe.dataset], device)


def _check_same(run: Run, recipe: TrainRecipe, settings: CertifyRecipe) -> None:
    """Refuse to continue a run that has other settings, before any run is trained."""
    if run.manifest.is_file() and (both := differing(recipe, run.read_recipe())):
        raise Mistake(
            f"{run.folder} holds another training, got {differences_text(both)}; give the same "
            "--share and --model, or another --runs"
        )
    check_certificates(run.folder, settings, otherwise="--runs")


def _certificates_alone(folder: Path) -> bool:
    """Whether a folder has certificates that were put there, not made by a run's training."""
    return (folder / TABLE).is_file() and not Run(folder).manifest.is_file()


def _examination(
    dataset: str,
    images: Selection,
    settings: CertifyRecipe,
    soft_betas: tuple[float, ...],
    data: Path | None,
) -> Examination:
    """The test images of a data set; a mistake is refused before hours of training."""
    split = load(dataset, "test", data)
    images.among(len(split.images))
    return Examination(split, images, settings, soft_betas)


def _training(dataset: str, data: Path | None) -> tuple[Split, tuple[str, ...]]:
    return load(dataset, "train", data), classes_of(dataset, data)
