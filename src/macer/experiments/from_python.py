"""A run from Python or a notebook: train it, certify it, and read what its certificates say."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from macer.audit import verify as verification
from macer.certification.data_set import certify_data_set
from macer.certification.preparation import plan_certification
from macer.certification.record import Record
from macer.certification.target import at_sigma, is_trained, trained_target
from macer.data.arrays import Data, as_split, class_names
from macer.data.selection import Selection
from macer.data.sets import Split, load
from macer.data.split import ARRAYS
from macer.data.value_range import IMAGE_RANGE, ValueRange
from macer.recipes import CertifyRecipe, TrainRecipe
from macer.reporting.log_table import LogTable, log_table
from macer.runs.data_code import data_home
from macer.runs.model_file import ModelCard
from macer.runs.names import TABLE
from macer.runs.run import Metrics, Run
from macer.runs.trained_model import load_model
from macer.system.errors import Mistake
from macer.system.user_code import nearest
from macer.training import loop
from macer.training.arguments import given_device
from macer.training.validation import Validation


@dataclass(frozen=True, repr=False)
class Certified:
    """Certificates of a run's images, in the order of their numbers."""

    folder: Path  # with the journal and the table
    records: tuple[Record, ...]  # idx, label, certificate

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def acr(self) -> float:
        """Average certified radius; a wrong label and an abstention count 0.  [Zhai+20, Sec. 5]"""
        return sum(r.certificate.radius * _is_right(r) for r in self.records) / len(self.records)

    def accuracy(self, radius: float = 0.0) -> float:
        """The share of images whose label is right and certified at least up to the radius."""
        right = (_is_right(r) and r.certificate.radius >= radius for r in self.records)
        return sum(right) / len(self.records)

    def __repr__(self) -> str:
        return log_table([self.folder]).markdown()

    _repr_markdown_ = __repr__


def _is_right(record: Record) -> bool:
    return record.certificate.label == record.label


@dataclass(frozen=True)
class TrainedRun(os.PathLike[str]):
    """A run's folder, and what can be done with the model in it.

    Where a path is expected it is that of its model file, FOLDER/model.safetensors.
    """

    folder: Path
    test: Split | None = field(default=None, compare=False, repr=False)  # to certify, if given

    def __fspath__(self) -> str:
        return str(self.model_file)

    @property
    def model_file(self) -> Path:
        """Final weights."""
        return Run(self.folder).model

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked for and what came of it."""
        return Run(self.folder).read_manifest()

    @property
    def metrics(self) -> list[Metrics]:
        """The metrics of each epoch."""
        return Run(self.folder).read_metrics()

    def load(self, *, code: Collection[str] = ()) -> tuple[nn.Module, ModelCard]:
        """The model, normalisation included, and what its file says of it."""
        return load_model(self.folder, code=code)

    def certify(
        self,
        data: Data | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        skip: int = 1,
        out: Path | str | None = None,
        device: torch.device | str = "cpu",
        batch_size: int | None = None,
        code: Collection[str] = (),
        **settings: Any,
    ) -> Certified:
        """Certify test images into a journal that survives a crash; continues where it stopped.

        Args:
            data: the test images and their labels, in any form that `macer.train` takes; by
                default those that `macer.train` was given, or the test images of the data set
                that the run was trained on.
            start, stop, skip: the images i with start ≤ i < stop and i % skip = 0.
            out: the folder for the certificates; the run's own by default.
            code: modules that the run's model file may name, see `load_model`.
            settings: fields of `macer.CertifyRecipe`, such as n=10_000 or bound="runner-up".
        """
        target, card = trained_target(str(self.folder), code=code)
        noise = {} if card.value_range == IMAGE_RANGE else {"exact": False}
        recipe = _certify_recipe({**noise, **settings})
        split = self._test_split(data, card, code)
        certification = plan_certification(
            target, split, split.dataset, recipe,
            device=given_device(device), batch_size=batch_size,
        )  # fmt: skip
        folder = self.folder if out is None else Path(out)
        indices = Selection(start, stop, skip).among(len(split.images))
        contents = certify_data_set(certification, indices, folder)
        return Certified(folder, tuple(contents.records[idx] for idx in sorted(contents.records)))

    def verify(
        self,
        data: Data | None = None,
        *,
        out: Path | str | None = None,
        resample: int | None = None,
        partial: bool = False,
        device: torch.device | str = "cpu",
        code: Collection[str] = (),
    ) -> int:
        """Audit the certificates as `macer verify` does; returns how many were drawn again.

        One that does not stand raises `macer.system.errors.AuditFailed`.

        Args:
            data: the test images and their labels, as for `certify`.
            out: the folder with the certificates; the run's own by default.
            resample: images to choose at random and to certify again from their seeds; by default
                as many as find a false record with probability 0.95, if one in a hundred is false;
                none where other arithmetic may give other counts.
            partial: verify the certificates that are there, even if some are missing.
            code: modules that the run's model file may name, see `load_model`.
        """
        folder = self.folder if out is None else Path(out)
        contents = verification.read_certificates(folder)
        target, card = trained_target(str(self.folder), code=code)
        split = self._test_split(data, card, code)
        verification.check_complete(contents, partial=partial)
        verification.recompute(contents)
        verification.check_table(contents, folder / TABLE)
        model = verification.check_sources(
            contents, at_sigma(target, contents.header.sigma), split, given_device(device)
        )
        images = verification.enough(len(contents.records)) if resample is None else resample
        if resample is None and verification.elsewhere(contents.header, model.device):
            images = 0
        return len(list(verification.resample(contents, model, split, images=images)))

    def _test_split(self, data: Data | None, card: ModelCard, code: Collection[str]) -> Split:
        """The images to certify; they must have the model's classes."""
        if data is None and self.test is None and card.dataset == ARRAYS:
            raise Mistake(
                "data must be the inputs and labels, of a run that was trained on arrays, got None"
            )
        if data is None and self.test is None:
            home = data_home(card.dataset, self.folder, code=code, source=self.model_file)
            return load(card.dataset, "test", home=home)
        split = self.test if data is None else as_split(data, card.value_range)
        assert split is not None
        class_names(card.classes, split)  # refuses labels beyond the classes
        return split


def train(
    recipe: TrainRecipe | str,
    data: Data,
    classes: Sequence[str] | None = None,
    folder: Path | str | None = None,
    *,
    value_range: ValueRange = IMAGE_RANGE,
    test: Data | None = None,
    device: torch.device | str = "cpu",
    init: TrainedRun | Path | str | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 30.0,
    validation: Validation = Validation(),  # noqa: B008  immutable
    watch: Callable[[Metrics], None] | None = None,
    code: Collection[str] = (),
) -> TrainedRun:
    """Train a model and return its run; see `macer.training.loop.train` for the arguments."""
    init = init.folder if isinstance(init, TrainedRun) else init
    model = loop.train(
        recipe, data, classes, folder, value_range=value_range, test=test, device=device, init=init,
        resume=resume, checkpoint_seconds=checkpoint_seconds, validation=validation, watch=watch,
        code=code,
    )  # fmt: skip
    return TrainedRun(model.parent, None if test is None else as_split(test, value_range))


def open_run(folder: Path | str) -> TrainedRun:
    """The run in a folder, trained or packed."""
    if not is_trained(str(folder)) or not Run(Path(folder)).model.is_file():
        raise Mistake(f"no run in {folder}: expected {Run(Path(folder)).model}")
    return TrainedRun(Path(folder))


def report(
    logs: Sequence[TrainedRun | Certified | Path | str],
    *,
    start: int = 0,
    stop: int | None = None,
    skip: int = 1,
    radii: Sequence[float] | None = None,
) -> LogTable:
    """Certified accuracy and ACR of runs, of certificates and of the field's logs, side by side.

    Args:
        logs: each a run, what its `certify` returned, a folder, a log file or zoo:NAME;
            differences are to the first.
        start, stop, skip: count only the images i with start ≤ i < stop and i % skip = 0.
        radii: to give the certified accuracy at.
    """
    if isinstance(logs, str | os.PathLike | Certified):
        logs = [logs]
    paths = [log.folder if isinstance(log, TrainedRun | Certified) else Path(log) for log in logs]
    return log_table(paths, Selection(start, stop, skip), radii)


def _certify_recipe(settings: dict[str, Any]) -> CertifyRecipe:
    known = [field.name for field in fields(CertifyRecipe)]
    for name in settings:
        if name not in known:
            raise Mistake(
                f"unknown setting {name!r}{nearest(name, known)}; choose from {', '.join(known)}"
            )
    return CertifyRecipe(**settings)
