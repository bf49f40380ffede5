"""Certify a model on a data set: image after image into a journal that survives a crash."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from macer import __version__
from macer.certification.anytime import ANYTIME, check_seconds, sample_anytime
from macer.certification.budget import DECIDED_EARLY, block_size
from macer.certification.certificate import Certificate
from macer.certification.fixed_radius import sample_and_certify_at
from macer.certification.header import Header
from macer.certification.journal import Contents, Writer, open_journal
from macer.certification.largest_radius import Kind, sample_and_certify, soft_betas
from macer.certification.record import Record
from macer.certification.settings import as_images, check_settings
from macer.certification.table import write_table
from macer.certification.target import PreparedModel, Target, prepare
from macer.data.file_lists import tell, write_file_lists
from macer.data.fingerprint import fingerprint, pixels_sha256
from macer.data.sets import Split
from macer.errors import Mistake
from macer.models.inference import resolve_precision
from macer.recipes import CertifyRecipe
from macer.runs.names import HELD_OUT, JOURNAL, MODEL, PARTS, TABLE, soft_folder
from macer.smoothing.bounds import READINGS
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Progress, Sampler, network_rows
from macer.smoothing.sequential import check_radius
from macer.system.files import sha256_of_file
from macer.system.processor import instruction_set
from macer.system.progress import bar, note
from macer.system.signals import sigterm_raises
from macer.system.text import shape_text


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


def plan_certification(
    target: Target,
    split: Split,
    dataset: str,
    recipe: CertifyRecipe,
    *,
    device: torch.device,
    batch_size: int | None = None,
    soft_betas: Sequence[float] = (),
    part: str = "test",
    family: int | None = None,
    seconds: float | None = None,
) -> Certification:
    """Check settings and prepare the model.

    Args:
        dataset: the name of the data set that the split is of.
        batch_size: noisy images that the network sees at once.
        soft_betas: certify by Bernstein at these β too, from the same samples.
        part: of the data set, test or train.
        family: how many images share the level α, if they do.
        seconds: go on to the next image after so much time; with the bound anytime.
    """
    _check_time(seconds, recipe.bound, soft_betas)
    precision = resolve_precision(recipe.precision, device)
    recipe = replace(recipe, precision=precision)  # type: ignore[arg-type]
    recipes = [recipe, *_soft_recipes(recipe, soft_betas)]
    for each in recipes:
        _check(target, split, dataset, each, batch_size)
    model = prepare(target, precision=precision, row_by_row=recipe.row_by_row, device=device)
    entries: dict[str, Any] = {
        "macer": __version__,
        "torch": torch.__version__,
        "model": target.architecture,
        "weights_sha256": target.weights_sha256,
        "dataset": dataset,
        "data_sha256": fingerprint(split),
        "split": part,
        "sigma": target.sigma,
        "chunk": CHUNK,
        "rows": network_rows(device, batch_size, target.shape, row_by_row=recipe.row_by_row),
        "device": device.type,
        "cpu": instruction_set(device),
        "tf32": device.type == "cuda" and torch.backends.cudnn.allow_tf32,
        "family": family,
        "outputs": model.outputs,
    }
    headers = tuple(
        Header(**entries, **asdict(each), also=other_readings(each)) for each in recipes
    )
    return Certification(model, split, tuple(recipes), headers, seconds)


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
        if folder.parent.name != PARTS:  # a process's own part
            write_file_lists(certification.split, folder, header.split)
            tell(certification.split)
        _note_what_is_known(journals, len(indices), len(todo))
        most, finished = certification.most_samples, 0
        size = block_size(header.rows, certification.usual_samples)
        size = size if certification.seconds is None else 1  # each image has its own time
        with sigterm_raises():
            _try_network(certification, todo[:size])
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
    return f"certifying {folder.name}, {images} image{'s' if images != 1 else ''}"


def _try_network(certification: Certification, block: Sequence[int]) -> None:
    """Try the network before the first block, visibly: a large one takes long.

    The speed and the time left are then those of the certification alone.
    """
    model, header = certification.model, certification.headers[0]
    if not block:
        return
    images = torch.from_numpy(np.asarray(certification.split.images[block])).to(model.device)
    sampler = Sampler(
        model=model.network, images=as_images(images, exact=header.exact), sigma=header.sigma,
        seed=header.seed, batch_size=header.rows, row_by_row=header.row_by_row,
    )  # fmt: skip
    sampler.try_network(lambda passes: bar("trying the network", passes, "passes", transient=True))


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
    split, model, header = certification.split, certification.model, certification.headers[0]
    pixels, labels = np.asarray(split.images[block]), split.labels[block].tolist()
    certificates = certify_by_recipes(
        model.network,
        torch.from_numpy(pixels).to(model.device),
        certification.recipes,
        sigma=header.sigma,
        labels=labels,
        indices=block,
        batch_size=header.rows,
        progress=progress,
        seconds=certification.seconds,
    )
    seconds = (time.monotonic() - started) / len(block)
    digests = [pixels_sha256(split, image) for image in pixels]
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
    seconds: float | None = None,
) -> list[list[Certificate]]:
    """The certificates of images by recipes that differ in bound and β only, from one pass.

    Args:
        labels: true classes, for recipes that only want a score.
        seconds: the most time for all images together, with one recipe by the bound anytime.
    """
    recipe = recipes[0]
    kinds = [Kind(each.bound, each.beta) for each in recipes]
    labels = labels if recipe.score else None
    n0, n, alpha = recipe.n0, recipe.n, recipe.alpha
    sampler = Sampler(
        model=model, images=as_images(images, exact=recipe.exact), sigma=sigma, seed=recipe.seed,
        indices=indices, betas=soft_betas(kinds), batch_size=batch_size,
        row_by_row=recipe.row_by_row, progress=progress,
    )  # fmt: skip
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
    return sample_and_certify(sampler, kinds, n0=n0, n=n, alpha=alpha, labels=labels)


def other_readings(recipe: CertifyRecipe) -> list[str]:
    """The other bounds that may read the same counts at level α, fixed before any is drawn.

    A journal of one radius has none: how many samples it draws depends on the votes.
    """
    if recipe.radius is not None or recipe.bound not in READINGS:
        return []
    return [name for name in READINGS if name != recipe.bound]


def _soft_recipes(recipe: CertifyRecipe, betas: Sequence[float]) -> list[CertifyRecipe]:
    if betas and recipe.radius is not None:
        raise Mistake(f"soft_betas must be left out with a radius, got {list(betas)}")
    if len(set(betas)) < len(betas):
        raise Mistake(f"soft_betas must differ, got {list(betas)}")
    return [replace(recipe, bound="bernstein", beta=beta) for beta in betas]


def _check_time(seconds: float | None, bound: str, soft_betas: Sequence[float]) -> None:
    check_seconds(seconds)
    if seconds is not None and bound != ANYTIME:
        raise Mistake(
            f"seconds must be left out with the {bound} bound, which needs all n samples, got "
            f"{seconds:g}; add --bound {ANYTIME}"
        )
    if seconds is not None and soft_betas:
        raise Mistake(f"soft_betas must be left out with seconds, got {list(soft_betas)}")


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
        raise Mistake(
            f"{target.name} takes {shape_text(target.shape)} images, those of {dataset} are "
            f"{shape_text(shape)}"
        )


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
