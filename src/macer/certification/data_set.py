"""Certify a model on a data set: image after image into a journal that survives a crash."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from macer.certification.anytime import sample_anytime
from macer.certification.budget import DECIDED_EARLY, Pace, certification_seconds
from macer.certification.certificate import Certificate
from macer.certification.fixed_radius import sample_and_certify_at
from macer.certification.header import Header
from macer.certification.journal import Contents, Writer, open_journal
from macer.certification.largest_radius import Kind, sample_and_certify, soft_betas
from macer.certification.pace import sampled_pace
from macer.certification.reach import largest_radius
from macer.certification.record import Record
from macer.certification.settings import as_inputs
from macer.certification.table import rounded_down, write_table
from macer.certification.target import PreparedModel
from macer.data.file_lists import tell, write_file_lists
from macer.data.fingerprint import pixels_sha256
from macer.data.sets import Split
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.recipes import CertifyRecipe
from macer.runs.names import HELD_OUT, JOURNAL, MODEL, PARTS, TABLE, soft_folder
from macer.smoothing.bounds import bound_named
from macer.smoothing.sampling import Progress, Sampler, block_size
from macer.system.errors import Mistake
from macer.system.files import sha256_of_file
from macer.system.progress import bar, note
from macer.system.signals import sigterm_raises
from macer.system.text import duration, rate_text

LONG = {"cpu": 10**6, "cuda": 10**8}  # samples that take minutes: a few seconds measure their time


@dataclass(frozen=True)
class Certification:
    """A model, images and settings: all that is needed to make certificates."""

    model: PreparedModel
    split: Split  # test images, or training images that the model has not seen
    recipes: tuple[CertifyRecipe, ...]  # one per journal; all but the first are soft
    headers: tuple[Header, ...]  # one per journal
    seconds: float | None = None  # the most for an image, with the bound that holds at any time

    def folders(self, folder: Path) -> list[Path]:
        """The folder of each journal: FOLDER, then FOLDER/bernstein-β for the soft ones."""
        return [folder, *(soft_folder(folder, header.beta) for header in self.headers[1:])]

    @property
    def most_samples(self) -> int:
        """Samples that an image can need."""
        return self.headers[0].n0 + self.headers[0].n

    @property
    def usual_samples(self) -> int:
        """Samples that most images need: a fixed radius is usually decided early."""
        header = self.headers[0]
        return header.n0 + (header.n if header.radius is None else min(header.n, DECIDED_EARLY))


def certify_data_set(
    certification: Certification,
    indices: Sequence[int],
    folder: Path,
    *,
    asked: Sequence[int] | None = None,
) -> Contents:
    """Certify the images that the folder's journals do not have yet; return all the first has.

    Args:
        indices: the images to certify now.
        asked: all images that the journals are to have, which they state; `indices` by default.
    """
    header, target = certification.headers[0], certification.model.target
    check_out(folder, target.weights_sha256, header.split, own=target.file)
    with _opened_journals(certification, folder, indices if asked is None else asked) as journals:
        todo = [i for i in indices if any(i not in j.contents.records for j in journals)]
        split = certification.split
        if split.account is not None and not _is_part(folder):
            tell(split, write_file_lists(split, folder, header.split))
        _note_what_is_known(journals, len(indices), len(todo))
        most, finished = certification.most_samples, 0
        size = block_size(header.rows, certification.usual_samples)
        size = size if certification.seconds is None else 1  # each image has its own time
        with sigterm_raises():
            if todo:
                # Now and visibly, since it takes long with a large network; the speed and the time
                # left are then those of the certification alone.
                _sampler(certification, _pixels(certification, todo[:size])).try_network()
                _say_what_it_takes(certification, todo)
        with (
            sigterm_raises(),
            bar(_title(folder, len(todo)), len(todo) * most, "samples") as advance,
        ):
            for block in blocks_of(todo, size):
                for journal, records in zip(
                    journals, _certified_block(certification, block, advance), strict=True
                ):
                    journal.append(r for r in records if r.idx not in journal.contents.records)
                finished += len(block)
                advance.reach(finished * most)
    return journals[0].contents


def _title(folder: Path, images: int) -> str:
    what = f"{images} image{'s' if images != 1 else ''}"
    if _is_part(folder):
        return f"certifying {folder.parents[1].name}, {what} of process {folder.name}"
    return f"certifying {folder.name}, {what}"


def _is_part(folder: Path) -> bool:
    """Whether one of several processes writes its own part there."""
    return folder.parent.name == PARTS


def _pixels(certification: Certification, indices: Sequence[int]) -> np.ndarray:
    return np.asarray(certification.split.images[indices])


def _sampler(
    certification: Certification,
    pixels: np.ndarray,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Sampler:
    """The sampler of some images, whose samples all journals share."""
    model, header = certification.model, certification.headers[0]
    return sampler_by(
        certification.recipes, model.network, torch.from_numpy(pixels).to(model.device),
        sigma=header.sigma, indices=indices, batch_size=header.rows, progress=progress,
        value_range=certification.split.value_range,
    )  # fmt: skip


def _say_what_it_takes(certification: Certification, todo: Sequence[int]) -> None:
    """Say beforehand what a long certification takes and can reach, by the plan's measurement."""
    header, device = certification.headers[0], certification.model.device
    samples = len(todo) * certification.most_samples
    if certification.seconds is not None or samples < LONG.get(device.type, samples + 1):
        return
    pace = sampled_pace(_sampler(certification, _pixels(certification, todo[:1])), device)
    note(_estimate(header, pace, len(todo)))


def _estimate(header: Header, pace: Pace, images: int) -> str:
    most = duration(certification_seconds(pace, images, n0=header.n0, n=header.n))
    speed = f"{rate_text(pace.samples_per_second)} samples/s"
    if header.radius is not None:
        early = min(header.n, DECIDED_EARLY)
        usual = duration(certification_seconds(pace, images, n0=header.n0, n=early))
        return f"{usual} at {speed} if {early:,} samples decide each image, {most} at most"
    if bound_named(header.bound).anytime:
        return f"{most} at {speed}"
    largest = largest_radius(header.n, sigma=header.sigma, alpha=header.alpha, bound=header.bound)
    return f"{most} at {speed}; no image can get a larger radius than {rounded_down(largest, 4)}"


@contextmanager
def _opened_journals(
    certification: Certification, folder: Path, asked: Sequence[int]
) -> Iterator[list[Writer]]:
    """The journal of each header; in the end each one's table is written beside it."""
    folders = certification.folders(folder)
    with ExitStack() as stack:
        journals = [
            stack.enter_context(open_journal(place / JOURNAL, header, asked))
            for place, header in zip(folders, certification.headers, strict=True)
        ]
        try:
            yield journals
        finally:
            for journal, place in zip(journals, folders, strict=True):
                write_table(journal.contents, place / TABLE)


def _certified_block(
    certification: Certification, block: Sequence[int], progress: Progress
) -> list[list[Record]]:
    """The records of some images, for each header, all from the same samples."""
    started = time.monotonic()
    pixels, labels = _pixels(certification, block), certification.split.labels[block].tolist()
    certificates = certify_by_recipes(
        _sampler(certification, pixels, block, progress),
        certification.recipes,
        labels=labels,
        seconds=certification.seconds,
    )
    seconds = (time.monotonic() - started) / len(block)
    digests = [pixels_sha256(certification.split, image) for image in pixels]
    return [
        [
            Record(idx, label, certificate, seconds, digest)
            for idx, label, certificate, digest in zip(
                block, labels, of_header, digests, strict=True
            )
        ]
        for of_header in certificates
    ]


def check_out(folder: Path, weights_sha256: str, part: str, *, own: Path | None = None) -> None:
    """Refuse a run's folder for certificates of another model, or of training images.

    Args:
        own: a file whose SHA-256 this is.
    """
    model = folder / MODEL
    if not model.is_file():
        return
    is_own = own is not None and model.samefile(own)
    if not is_own and sha256_of_file(model) != weights_sha256:
        raise Mistake(
            f"out must hold the model that the certificates are of, or none, got {folder}; choose "
            "another --out"
        )
    if part == "train":
        raise Mistake(
            f"out must not be a run's own folder for held-out images, got {folder}; choose "
            f"{folder / HELD_OUT}"
        )


def sampler_by(
    recipes: Sequence[CertifyRecipe],
    model: nn.Module,
    images: Tensor,
    *,
    sigma: float,
    indices: Sequence[int] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
    value_range: ValueRange = IMAGE_RANGE,
) -> Sampler:
    """The one sampler for recipes that differ in bound and β only.

    Args:
        value_range: of inputs that are no images, see `certify`.
    """
    recipe = recipes[0]
    inputs = as_inputs(images, sigma=sigma, exact=recipe.exact, value_range=value_range)
    return Sampler(
        model=model, images=inputs, sigma=sigma, seed=recipe.seed, indices=indices,
        betas=soft_betas(_kinds(recipes)), batch_size=batch_size, row_by_row=recipe.row_by_row,
        progress=progress,
    )  # fmt: skip


def _kinds(recipes: Sequence[CertifyRecipe]) -> list[Kind]:
    return [Kind(recipe.bound, recipe.beta) for recipe in recipes]


def certify_by_recipes(
    sampler: Sampler,
    recipes: Sequence[CertifyRecipe],
    *,
    labels: Sequence[int] | None,
    seconds: float | None = None,
) -> list[list[Certificate]]:
    """The certificates by each recipe, from one pass over the samples of `sampler_by`.

    Args:
        labels: true classes, for recipes that only want a score.
        seconds: the most time for all images together, with one recipe by the bound anytime.
    """
    recipe = recipes[0]
    labels = labels if recipe.score else None
    n0, n, alpha = recipe.n0, recipe.n, recipe.alpha
    if recipe.radius is not None:
        certificates = sample_and_certify_at(
            sampler, recipe.radius, n0=n0, n=n, alpha=alpha, labels=labels
        )
        return [certificates]
    if seconds is not None:
        *_, certificates = sample_anytime(
            sampler, n0=n0, n=n, alpha=alpha, labels=labels, seconds=seconds
        )
        return [certificates]
    return sample_and_certify(sampler, _kinds(recipes), n0=n0, n=n, alpha=alpha, labels=labels)


def _note_what_is_known(journals: Sequence[Writer], asked: int, todo: int) -> None:
    if dropped := sum(journal.contents.dropped for journal in journals):
        note(f"the journal holds {dropped} damaged records, which do not count")
    if todo < asked:
        note(f"{asked - todo} of {asked} images are certified already")


def blocks_of(todo: Sequence[int], size: int) -> Iterator[list[int]]:
    """The images to certify together; a block is on the disk before the next one begins."""
    size = max(size, 1)
    for start in range(0, len(todo), size):
        yield list(todo[start : start + size])
