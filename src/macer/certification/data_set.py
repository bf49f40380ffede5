"""Certify a model on a data set: image after image into a journal that survives a crash."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from macer import __version__
from macer.certification.certificate import Certificate
from macer.certification.fixed_radius import certify_at
from macer.certification.header import Header
from macer.certification.journal import (
    HELD_OUT,
    JOURNAL,
    Contents,
    Record,
    open_journal,
    write_table,
)
from macer.certification.largest_radius import Kind, certify_kinds, check_settings
from macer.certification.target import Target, function_of
from macer.data.sets import Split, fingerprint, pixels_sha256
from macer.errors import Mistake
from macer.models.inference import for_inference, resolved
from macer.recipes import CertifyRecipe
from macer.runs.run import Run
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Progress, network_rows
from macer.smoothing.sequential import check_radius
from macer.system.files import sha256_of_file
from macer.system.processor import instruction_set
from macer.system.progress import bar, note
from macer.system.signals import stopping_at_once


def chosen_images(
    count: int, start: int, stop: int | None, skip: int, *, first: int = 0
) -> list[int]:
    """The images i with start ≤ i < stop and i % skip = 0, as the field counts them.

    Args:
        first: only the images from this one on are to be had.
    """
    if skip < 1:
        raise Mistake(f"skip must be at least 1, got {skip}")
    if start < 0:
        raise Mistake(f"start must be at least 0, got {start}")
    stop = count if stop is None else stop
    if stop > count:
        raise Mistake(f"stop must be at most the number of images, {count}, got {stop}")
    start = max(start, first)
    images = [i for i in range(start, stop) if i % skip == 0]
    if not images:
        known = f"; the held-out images are {first}…{count - 1}" if first else ""
        raise Mistake(f"no image i has {start} ≤ i < {stop} and i % {skip} = 0{known}")
    return images


def certify_data_set(
    target: Target,
    split: Split,
    dataset: str,
    indices: Sequence[int],
    recipe: CertifyRecipe,
    folder: Path,
    *,
    device: torch.device,
    batch_size: int | None = None,
    soft_betas: Sequence[float] = (),
    part: str = "test",
    asked: Sequence[int] | None = None,
    family: int | None = None,
) -> Contents:
    """Certify the images that the folder's journal does not have yet; return all it has.

    Args:
        split: test images, or training images that the model has not seen.
        indices: the images to certify now.
        asked: all images that the journal is to have, which it states; `indices` by default.
        family: how many images share the level α, if they do.
        soft_betas: certify by Bernstein at these β too, from the same samples, each into a
            folder of its own: FOLDER/bernstein-β.
        part: of the data set, test or train.
    """
    precision = resolved(recipe.precision, device)
    recipe = replace(recipe, precision=precision)  # type: ignore[arg-type]
    recipes = [recipe, *_soft_recipes(recipe, soft_betas)]
    for one in recipes:
        _check(target, split, dataset, one, batch_size)
    check_place(folder, target.weights_sha256, part)
    model = for_inference(target.model, shape=target.shape, precision=precision, device=device)
    rows = network_rows(device, batch_size, target.shape, row_by_row=recipe.row_by_row)
    folders = [folder, *(folder / f"bernstein-{beta:g}" for beta in soft_betas)]
    header = {
        **_header(target, split, dataset, part=part, rows=rows, device=device),
        "family": family,
        "outputs": function_of(target, model, row_by_row=recipe.row_by_row, device=device).outputs,
    }
    with ExitStack() as stack:
        journals = [
            stack.enter_context(
                open_journal(
                    where / JOURNAL, header | asdict(one), indices if asked is None else asked
                )
            )
            for one, where in zip(recipes, folders, strict=True)
        ]
        todo = [i for i in indices if any(i not in j.contents.records for j in journals)]
        _tell(sum(j.contents.dropped for j in journals), len(indices), len(todo))
        try:
            with (
                stopping_at_once(),
                bar(f"certifying {folder.name}", len(todo) * _most(recipe), "samples") as advance,
            ):
                finished = 0
                for block in _blocks(todo, 50 * max(rows, CHUNK) // _usual(recipe)):
                    started = time.monotonic()
                    pixels = np.asarray(split.images[block])
                    certificates = certify_by_recipes(
                        model,
                        torch.from_numpy(pixels).to(device),
                        recipes,
                        sigma=target.sigma,
                        labels=split.labels[block].tolist(),
                        indices=block,
                        batch_size=rows,
                        progress=advance,
                    )
                    seconds = (time.monotonic() - started) / len(block)
                    finished += len(block)
                    advance.reach(finished * _most(recipe))
                    digests = [pixels_sha256(split, image) for image in pixels]
                    for journal, some in zip(journals, certificates, strict=True):
                        journal.append(
                            Record(i, int(split.labels[i]), certificate, seconds, digest)
                            for i, certificate, digest in zip(block, some, digests, strict=True)
                            if i not in journal.contents.records
                        )
        finally:
            for journal, where in zip(journals, folders, strict=True):
                write_table(journal.contents, where / "certificates.tsv")
    return journals[0].contents


def check_place(folder: Path, weights_sha256: str, part: str) -> None:
    """Refuse a run's folder for certificates of another model, or of training images."""
    model = Run(folder).model
    if not model.is_file():
        return
    if sha256_of_file(model) != weights_sha256:
        raise Mistake(
            f"out must hold the model that the certificates are of, or none, got {folder}; choose "
            "another --out"
        )
    if part == "train":
        raise Mistake(
            f"out must not be a run's own folder for held-out images, got {folder}; choose "
            f"{folder / HELD_OUT}"
        )


def certify_by_recipes(
    model: nn.Module,
    images: Tensor,
    recipes: Sequence[CertifyRecipe],
    *,
    sigma: float,
    labels: Sequence[int] | None,
    indices: Sequence[int],
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> list[list[Certificate]]:
    """The certificates of images by recipes that differ in bound and β only, from one pass.

    Args:
        labels: true classes, for recipes that only want a score.
    """
    recipe = recipes[0]
    arguments: dict[str, Any] = {
        "sigma": sigma,
        **{name: getattr(recipe, name) for name in ("n0", "n", "alpha", "seed", "exact")},
        "row_by_row": recipe.row_by_row,
        "labels": labels if recipe.score else None,
        "indices": indices,
        "batch_size": batch_size,
        "progress": progress,
    }
    if recipe.radius is not None:
        return [certify_at(model, images, radius=recipe.radius, **arguments)]
    return certify_kinds(model, images, [Kind(one.bound, one.beta) for one in recipes], **arguments)


def _soft_recipes(recipe: CertifyRecipe, betas: Sequence[float]) -> list[CertifyRecipe]:
    if betas and recipe.radius is not None:
        raise Mistake(f"soft_betas must be left out with a radius, got {list(betas)}")
    if len(set(betas)) < len(betas):
        raise Mistake(f"soft_betas must differ, got {list(betas)}")
    return [replace(recipe, bound="bernstein", beta=beta) for beta in betas]


def _header(
    target: Target,
    split: Split,
    dataset: str,
    *,
    part: str,
    rows: int,
    device: torch.device,
) -> Header:
    """All that a certificate depends on, but its recipe."""
    return {
        "macer": __version__,
        "torch": torch.__version__,
        "model": target.architecture,
        "weights_sha256": target.weights_sha256,
        "dataset": dataset,
        "data_sha256": fingerprint(split),
        **({} if part == "test" else {"split": part}),
        "sigma": target.sigma,
        "chunk": CHUNK,
        "rows": rows,
        "device": device.type,
        "cpu": instruction_set(device),
        "tf32": device.type == "cuda" and torch.backends.cudnn.allow_tf32,
    }


def _check(
    target: Target, split: Split, dataset: str, recipe: CertifyRecipe, batch_size: int | None
) -> None:
    if batch_size is not None and batch_size < 1:
        raise Mistake(f"batch_size must be at least 1, got {batch_size}")
    check_settings(
        sigma=target.sigma,
        n0=recipe.n0,
        n=recipe.n,
        alpha=recipe.alpha,
        bound=recipe.bound,
        beta=recipe.beta,
    )
    if recipe.radius is not None:
        check_radius(recipe.radius, sigma=target.sigma, alpha=recipe.alpha, n_max=recipe.n)
    shape = tuple(split.images.shape[1:])
    if shape != target.shape:
        wanted, got = ("×".join(map(str, s)) for s in (target.shape, shape))
        raise Mistake(f"{target.name} takes {wanted} images, those of {dataset} are {got}")


def _most(recipe: CertifyRecipe) -> int:
    """Samples that an image can need."""
    return recipe.n0 + recipe.n


def _usual(recipe: CertifyRecipe) -> int:
    """Samples that most images need: a fixed radius is usually decided early."""
    return recipe.n0 + (recipe.n if recipe.radius is None else min(recipe.n, 1000))


def _tell(dropped: int, asked: int, todo: int) -> None:
    if dropped:
        note(f"the journal holds {dropped} damaged records, which do not count")
    if todo < asked:
        note(f"{asked - todo} of {asked} images are certified already")


def _blocks(todo: Sequence[int], size: int) -> Iterator[list[int]]:
    """The images to pack together; each block is on the disk before the next is begun."""
    size = max(size, 1)
    for start in range(0, len(todo), size):
        yield list(todo[start : start + size])
