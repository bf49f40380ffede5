"""The images that every model of a series is certified on, and their certification."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from macer.certification.data_set import certify_data_set
from macer.certification.preparation import plan_certification
from macer.certification.target import trained_target
from macer.data.selection import Selection
from macer.data.sets import Split
from macer.recipes import CertifyRecipe
from macer.reporting.logs import CertificateLog, read_log, select
from macer.runs.names import HELD_OUT


@dataclass(frozen=True)
class Examination:
    """The images that every model is certified on, and the settings."""

    split: Split
    images: Selection
    settings: CertifyRecipe
    soft_betas: tuple[float, ...] = ()  # certify by Bernstein's bound at these β too
    held_out: int = 0  # only the last training images; 0: test images

    def indices(self) -> list[int]:
        """The numbers of the images."""
        count = len(self.split.images)
        first = count - self.held_out if self.held_out else 0
        return self.images.among(count, first=first)

    def place(self, run: Path) -> Path:
        """The folder of a run's certificates."""
        return run / HELD_OUT if self.held_out else run


def certified(
    folder: Path, dataset: str, exam: Examination, device: torch.device
) -> CertificateLog:
    """Certify the images that the run has no certificates of yet, and return all of them."""
    target, _ = trained_target(str(folder))
    part, where = "train" if exam.held_out else "test", exam.place(folder)
    indices = exam.indices()
    certification = plan_certification(
        target, exam.split, dataset, exam.settings,
        device=device, soft_betas=exam.soft_betas, part=part,
    )  # fmt: skip
    certify_data_set(certification, indices, where)
    return select(read_log(where), replace(exam.images, start=indices[0]))
