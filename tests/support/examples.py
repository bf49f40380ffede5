"""Certificate logs that several test files use."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from macer.reporting.logs import CertificateLog, read_log

DATA = Path(__file__).parent / "logs"


def log_of(
    predict: list[int], radius: list[float], *, name: str = "some", start: int = 0
) -> CertificateLog:
    """A log whose images all have the label 0."""
    label = np.zeros(len(predict), np.int64)
    predicted = np.array(predict, np.int64)
    idx = np.arange(start, start + len(predict))
    return CertificateLog(name, idx, label, predicted, np.array(radius), predicted == label)


def with_classes(log: CertificateLog, label: ArrayLike, predict: ArrayLike) -> CertificateLog:
    """A log with other labels and predictions, its radii as they were."""
    labels, predicted = np.array(label, np.int64), np.array(predict, np.int64)
    return replace(log, label=labels, predict=predicted, correct=predicted == labels)


def random_log(seed: int, images: int = 200) -> CertificateLog:
    random = np.random.default_rng(seed)
    predict = random.integers(-1, 2, images)
    radius = np.where(predict == -1, 0.0, random.integers(0, 60, images) / 64)
    return log_of(predict.tolist(), radius.tolist(), name=f"random{seed}")


def published_logs() -> list[CertificateLog]:
    """The logs of the MACER authors' models, see logs/README.md."""
    return [read_log(DATA / f"macer_sigma{sigma}.tsv.gz") for sigma in ("0.25", "0.5", "1.0")]


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
