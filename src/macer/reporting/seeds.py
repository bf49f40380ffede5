"""Several trainings of one recipe with different seeds: their mean, and its standard error."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from macer.reporting.logs import CertificateLog
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    common_images,
    error_of_mean,
)
from macer.smoothing.confidence import Floats
from macer.system.errors import Mistake

_SUFFIX = ".tsv.gz"

Logs = Mapping[int, CertificateLog]  # by the seed


class OverSeeds(NamedTuple):
    """The ACRs of one recipe's trainings on the same images, and their mean."""

    seeds: tuple[int, ...]
    acrs: tuple[float, ...]
    acr: float  # their mean
    spread: float | None  # their sample standard deviation; None for one seed
    standard_error: float  # of the mean, over images and seeds
    median: int  # the seed with the median ACR; of an even number, the lower of the middle two


def seed_files(folder: Path, stem: str) -> dict[int, Path]:
    """The logs of a recipe by seed: STEM.tsv.gz is of seed 0, STEM-seed-S.tsv.gz of seed S."""
    pattern = re.compile(rf"{re.escape(stem)}-seed-([1-9]\d*){re.escape(_SUFFIX)}")
    named = {file: pattern.fullmatch(file.name) for file in folder.glob(f"{stem}-seed-*{_SUFFIX}")}
    found = {int(match[1]): file for file, match in named.items() if match}
    return {0: folder / f"{stem}{_SUFFIX}"} | dict(sorted(found.items()))


def over_seeds(logs: Logs) -> OverSeeds:
    """The mean over the seeds; its standard error is that of `error_over_seeds`."""
    acrs = {seed: average_certified_radius(log) for seed, log in logs.items()}
    values = list(acrs.values())
    by_acr = sorted(acrs, key=lambda seed: acrs[seed])
    return OverSeeds(
        seeds=tuple(acrs),
        acrs=tuple(values),
        acr=float(np.mean(values)),
        spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        standard_error=error_over_seeds(contributions(list(logs.values())), values),
        median=by_acr[(len(by_acr) - 1) // 2],
    )


def mean_difference(logs: Logs, other: CertificateLog) -> Difference:
    """The mean of the seeds' ACRs minus another log's ACR, paired over their common images."""
    own = list(logs.values())
    in_own, in_other = common_images(own[0], other)
    gain = contributions(own)[in_own] - (other.radius * other.correct)[in_other]
    acrs = [float(np.mean((log.radius * log.correct)[in_own])) for log in own]
    return Difference(float(np.mean(gain)), error_over_seeds(gain, acrs), len(gain))


def contributions(logs: Sequence[CertificateLog]) -> Floats:
    """Each image's contribution to ACR, radius · 1[predict = label], averaged over the logs."""
    for log in logs[1:]:
        if not np.array_equal(log.idx, logs[0].idx) or not np.array_equal(log.label, logs[0].label):
            raise Mistake(f"{log.name} must have the images and labels of {logs[0].name}")
    return np.asarray(np.mean([log.radius * log.correct for log in logs], axis=0))


def error_over_seeds(values: Floats, acrs: Sequence[float]) -> float:
    """Standard error of a mean over images and seeds; with one seed, over the images alone.

    √(s²_images / m + s²_seeds / S)

    It is rather too large: what an image and a seed do to each other is in both variances.

    Args:
        values: one per image, averaged over the seeds.
        acrs: one per seed.
    """
    images = error_of_mean(values)
    return math.hypot(images, error_of_mean(np.asarray(acrs))) if len(acrs) > 1 else images
