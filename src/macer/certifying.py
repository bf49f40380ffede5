"""Certify a model on a data set: image after image into a journal that survives a crash."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from macer import __version__
from macer.building import build_model
from macer.certification import certify, check_settings
from macer.data import Split, fingerprint
from macer.files import sha256_of_file
from macer.foreign import names_a_function
from macer.journal import Contents, Record, open_journal, write_table
from macer.mistake import Mistake
from macer.noisy import CHUNK
from macer.progress import bar, note
from macer.recipes import CertifyRecipe
from macer.run import Run, load_model
from macer.smoothing import network_dtype, network_rows


@dataclass(frozen=True)
class Target:
    """A model to certify, and what the journal's header says of it."""

    model: nn.Module
    name: str  # as the user wrote it
    architecture: str
    sigma: float
    shape: tuple[int, int, int]
    num_classes: int
    weights_sha256: str


def find_target(name: str, *, sigma: float | None, split: Split, classes: int) -> Target:
    """The model of a run folder, of a model file, or of package.module:function."""
    path = Path(name)
    if path.exists():
        model, card = load_model(path)
        if classes != len(card.classes):
            raise Mistake(
                f"{name} knows {len(card.classes)} classes, the data set has {classes}; "
                "choose another --dataset"
            )
        if sigma is not None and sigma != card.sigma:
            raise Mistake(f"sigma must be {card.sigma}, which {name} was trained with, got {sigma}")
        file = Run(path).model if path.is_dir() else path
        return Target(
            model,
            name,
            card.architecture,
            card.sigma,
            card.shape,
            len(card.classes),
            sha256_of_file(file),
        )
    if not names_a_function(name):
        raise Mistake(
            f"no run or model at {name}; name a run folder, a model file or package.module:function"
        )
    if sigma is None:
        raise Mistake(f"sigma must be given to certify {name}; add --sigma")
    channels, height, width = split.images.shape[1:]
    shape = (channels, height, width)
    model = build_model(name, num_classes=classes, shape=shape)
    return Target(model, name, name, sigma, shape, classes, weights_digest(model))


def weights_digest(model: nn.Module) -> str:
    """The SHA-256 of a model's tensors, for models that come without a file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def chosen_images(count: int, start: int, stop: int | None, skip: int) -> list[int]:
    """The images i with start ≤ i < stop and i % skip = 0, as the field counts them."""
    if skip < 1:
        raise Mistake(f"skip must be at least 1, got {skip}")
    if start < 0:
        raise Mistake(f"start must be at least 0, got {start}")
    stop = count if stop is None else stop
    if stop > count:
        raise Mistake(f"stop must be at most the number of test images, {count}, got {stop}")
    images = [i for i in range(start, stop) if i % skip == 0]
    if not images:
        raise Mistake(f"no image i has {start} ≤ i < {stop} and i % {skip} = 0")
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
) -> Contents:
    """Certify the images that the folder's journal does not have yet; return all it has."""
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
    _check_shape(target, split, dataset)
    model = target.model.to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = network_rows(device, batch_size)
    header = {
        "macer": __version__,
        "torch": torch.__version__,
        "model": target.architecture,
        "weights_sha256": target.weights_sha256,
        "dataset": dataset,
        "data_sha256": fingerprint(split),
        "sigma": target.sigma,
        **asdict(recipe),
        "chunk": CHUNK,
        "rows": rows,
        "precision": _precision(model, device),
        "device": device.type,
    }
    with open_journal(folder / "certificates.journal", header) as journal:
        todo = [i for i in indices if i not in journal.contents.records]
        _tell(journal.contents.dropped, len(indices), len(todo))
        total = len(todo) * (recipe.n0 + recipe.n)
        try:
            with bar(f"certifying {folder.name}", total, "samples") as advance:
                for block in _blocks(todo, 50 * rows // (recipe.n0 + recipe.n)):
                    started = time.monotonic()
                    certificates = certify(
                        model,
                        torch.from_numpy(split.images[block]).to(device),
                        sigma=target.sigma,
                        **recipe.arguments(),
                        labels=split.labels[block].tolist() if recipe.score else None,
                        indices=block,
                        batch_size=rows,
                        progress=advance,
                    )
                    seconds = (time.monotonic() - started) / len(block)
                    journal.append(
                        Record(i, int(split.labels[i]), certificate, seconds)
                        for i, certificate in zip(block, certificates, strict=True)
                    )
        finally:
            write_table(journal.contents, folder / "certificates.tsv")
    return journal.contents


def _precision(model: nn.Module, device: torch.device) -> str:
    """The arithmetic that the certificates belong to."""
    name = str(network_dtype(model)).removeprefix("torch.")
    tf32 = device.type == "cuda" and torch.backends.cudnn.allow_tf32
    return f"{name}, tf32 convolutions" if tf32 and name == "float32" else name


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


def _check_shape(target: Target, split: Split, dataset: str) -> None:
    shape = tuple(split.images.shape[1:])
    if shape != target.shape:
        wanted, got = ("×".join(map(str, s)) for s in (target.shape, shape))
        raise Mistake(f"{target.name} takes {wanted} images, those of {dataset} are {got}")
