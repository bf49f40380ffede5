"""A log by another bound of votes, from its column `counts`; nothing is sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch

from macer.certification.conclusions import conclude
from macer.certification.table import rounded_down
from macer.reporting.log_rows import log_lines
from macer.reporting.logs import CertificateLog, read_log
from macer.smoothing.tally import Tally
from macer.system.errors import Mistake

OTHER = "runner-up"  # the bound beside Clopper and Pearson's, wherever an ACR of ours is given


@cache
def by_bound(file: Path, bound: str = OTHER) -> CertificateLog | None:
    """The log with the certificates that its counts give by the bound; None where it has no counts.

    A bound that was chosen after the counts were drawn gives no certificates at level α.
    """
    log = read_log(file)
    if log.classes is None or log.sigma is None or log.n is None or log.alpha is None:
        return None
    columns = _columns(file)
    selected, votes = _counted(file, columns, log.n)
    selection = torch.nn.functional.one_hot(selected, votes.shape[1])
    certificates = conclude(
        *(Tally(counts, counts, counts) for counts in (selection, votes)),
        sigma=log.sigma, n=log.n, alpha=log.alpha, bound=bound,
    )  # fmt: skip
    order = np.argsort(np.array(columns["idx"], np.int64))
    predict = np.array([each.label for each in certificates])[order]
    radius = np.array([float(rounded_down(each.radius)) for each in certificates])[order]
    return replace(log, bound=bound, predict=predict, radius=radius, correct=predict == log.label)


def _counted(
    file: Path, columns: Mapping[str, Sequence[str]], n: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The selected class of each image, and its votes (images, classes), at most n."""
    try:
        votes = torch.tensor([list(map(int, text.split(","))) for text in columns["counts"]])
        selected = torch.tensor(list(map(int, columns["selected"])))
    except (KeyError, ValueError, RuntimeError):  # of torch: rows of several lengths, or too large
        votes, selected = torch.tensor([[-1]]), torch.tensor([0])
    in_range = int(selected.min()) >= 0 and int(selected.max()) < votes.shape[1]
    if not in_range or votes.min() < 0 or votes.max() > n or votes.sum(dim=1).max() > n:
        raise Mistake(
            f"counts of {file} must be votes for each class, {n} at most, and selected one of the "
            "classes, in every row; name a table that `macer certify` wrote"
        )
    return selected, votes


def _columns(file: Path) -> dict[str, list[str]]:
    """A table's columns by their names, in the order of its lines."""
    rows = [line.split("\t") for line in log_lines(file)]
    return {name: cells for name, *cells in zip(*rows, strict=True)}
