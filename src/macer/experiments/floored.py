"""A run whose model has offsets of its logits, so that no class is given up."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from macer.certification.target import PreparedModel, Target, find_target, prepare, trained_target
from macer.data.fingerprint import fingerprint
from macer.data.sets import Split
from macer.experiments.class_floor import class_accuracies, least_offsets
from macer.models.inference import resolve_precision
from macer.models.offsets import with_offsets
from macer.runs.model_file import model_bytes
from macer.runs.packed import packed_run
from macer.runs.run import Run, check_no_run
from macer.smoothing.streams import Purpose
from macer.system.errors import Mistake
from macer.system.progress import bar
from macer.system.user_code import own_modules
from macer.training.batches import as_floats
from macer.training.votes import sampled_logits

TRIED = 4  # images on which the offsets are tried


class FlooredClass(NamedTuple):
    """A class's offset, and the share of its images that are right without and with all offsets."""

    name: str
    offset: float
    before: float | None  # none of its images were among them
    after: float | None


class Floored(NamedTuple):
    """A run with offsets, and what they do to each class."""

    run: Run
    classes: list[FlooredClass]


def raise_floor(
    name: str,
    split: Split,
    folder: Path,
    *,
    at_least: float,
    images: int = 200,
    samples: int = 32,
    precision: str = "auto",
    device: torch.device,
    code: Collection[str] = (),
) -> Floored:
    """Make a run of a trained model and the least offsets by which no class is below a floor.

    Args:
        name: a run folder, a model file or zoo:NAME.
        split: the images that choose the offsets; none that is certified later.
        at_least: the share of each class that is to be right on most noisy copies.
        images: the most images of each class, taken evenly.
        samples: noisy copies of each image.
        code: modules that the model file may name, see `load_model`.
    """
    _check(at_least, images, samples)
    check_no_run(folder)
    known = trained_target(name, code=code)
    target, card = known
    find_target(name, sigma=None, split=split, classes=split.classes, known=known)
    few = _some_of_each_class(split.labels, images)
    inputs, labels = np.asarray(split.images[few]), torch.from_numpy(split.labels[few])
    tried = as_floats(torch.from_numpy(inputs[:TRIED]))

    def changed(offsets: Tensor) -> nn.Module:
        assert isinstance(target.model, nn.Sequential)  # a trained model's
        return with_offsets(target.model, offsets.float(), tried, name=name)

    changed(torch.ones(len(card.classes)))  # refused before the network runs for minutes
    prepared = _prepared(target, split, precision, device)
    logits = _logits(prepared, inputs, samples)
    offsets = least_offsets(logits, labels, at_least, card.classes)
    floor = {
        "at_least": at_least,
        "offsets": offsets.tolist(),
        "images": len(few),
        "samples": samples,
        "precision": prepared.precision,
        "data_sha256": fingerprint(split),  # of all images that these were taken from
    }
    made_of = {"members": {name: target.weights_sha256}, "floor": floor}
    content = model_bytes(changed(offsets).state_dict(), card)
    run = packed_run(folder, content, made_of, own_modules(card.architecture, card.dataset))
    shares = (class_accuracies(logits, labels, b) for b in (0 * offsets, offsets))
    rows = zip(card.classes, offsets.tolist(), *shares, strict=True)
    return Floored(run, [FlooredClass(*row) for row in rows])


def _check(at_least: float, images: int, samples: int) -> None:
    if not 0 < at_least <= 1:
        raise Mistake(f"at_least must be in (0, 1], got {at_least}")
    for name, value in (("images", images), ("samples", samples)):
        if value < 1:
            raise Mistake(f"{name} must be at least 1, got {value}")


def _some_of_each_class(labels: np.ndarray, most: int) -> list[int]:
    """The numbers of at most so many images of each class, evenly over them, in order."""
    chosen: list[int] = []
    for c in np.unique(labels):
        own = np.flatnonzero(labels == c)
        count = min(most, len(own))
        chosen.extend(own[np.arange(count) * len(own) // count].tolist())
    return sorted(chosen)


def _prepared(target: Target, split: Split, precision: str, device: torch.device) -> PreparedModel:
    chosen = resolve_precision(precision, device) if split.are_images else "fp32"
    return prepare(target, precision=chosen, row_by_row=False, device=device)


def _logits(model: PreparedModel, images: np.ndarray, samples: int) -> Tensor:
    """The logits of noisy copies, (images, samples, classes) float32 on the CPU."""
    batches = []
    with bar("logits of training images", len(images) * samples, "samples") as advance:
        for logits in sampled_logits(
            model.network,
            torch.from_numpy(images),
            samples=samples,
            sigma=model.target.sigma,
            seed=0,
            purpose=Purpose.OFFSETS,
            device=model.device,
        ):
            batches.append(logits.float().cpu())
            advance(logits.shape[0] * samples)
    return torch.cat(batches)
