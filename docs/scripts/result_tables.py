"""Tables of the documentation that are computed from the certificates in results/.

python docs/scripts/result_tables.py

prints the table of README.md, which a test compares with what stands there.
"""

import csv
import gzip
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from macer.data.sets import classes_of
from macer.reporting.classes import class_text
from macer.reporting.leaderboard import Entry, board, entries
from macer.reporting.logs import CertificateLog, read_log
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    certified_accuracy,
    given_up,
    paired_difference,
    standard_error,
)
from macer.reporting.texts import setting, thousands
from macer.smoothing.bounds import bound_named
from macer.smoothing.confidence import radius_lower
from macer.smoothing.tally import Tally
from macer.system.text import unbroken

RESULTS = Path(__file__).parents[2] / "results"
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SIGMAS = (0.25, 0.5, 1.0)
BOUNDS = ("clopper-pearson", "runner-up")

# Objectives of the logs of MNIST, with the ACRs of the authors' logs (smoothing-catrs) by σ.
OBJECTIVES = {
    "gaussian": ("Gaussian", (0.911, 1.558, 1.618)),
    "macer": ("MACER", (0.920, 1.590, 1.595)),
    "smoothadv": ("SmoothAdv", (None, None, None)),
    "consistency": ("Consistency", (0.928, 1.655, 1.738)),
    "catrs": ("CAT-RS", (0.933, 1.700, 1.831)),
}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown; a bar in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def code(value: object) -> str:
    """A value as code; nothing for an empty one."""
    return f"`{value}`" if str(value) else ""


# figures


@cache
def log_of(name: str) -> CertificateLog:
    """A log of results/ by its name."""
    return read_log(RESULTS / f"{name}.tsv.gz")


def acr(name: str) -> str:
    """ACR with its standard error over the images."""
    log = log_of(name)
    return f"{average_certified_radius(log):.3f} ± {standard_error(log):.3f}"


def gain(name: str, published: str) -> str:
    """How much higher ACR is than a published log's on the same images, paired."""
    return _difference(paired_difference(log_of(name), log_of(f"published/{published}")))


def _difference(difference: Difference) -> str:
    signed = f"{difference.difference:+.3f}".replace("-", "−")
    return f"{signed} ± {difference.standard_error:.3f}"


@cache
def by_both_bounds(name: str) -> tuple[float, float] | None:
    """ACR by Clopper and Pearson's bound and by the runner-up's, from the counts of a log alone."""
    with gzip.open(RESULTS / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if "counts" not in rows[0] or not all(row["counts"] for row in rows):
        return None
    votes = torch.tensor([list(map(int, row["counts"].split(","))) for row in rows])
    selected, label = (
        torch.tensor([int(row[key]) for row in rows]) for key in ("selected", "label")
    )
    n, alpha, sigma = (float(rows[0][key]) for key in ("n", "alpha", "sigma"))
    acrs = []
    for bound in BOUNDS:
        tally = Tally(votes, votes, votes)
        p_a, p_b = bound_named(bound).probabilities(tally, selected, int(n), alpha)
        radius = radius_lower(p_a, sigma, p_b)
        acrs.append(float(np.mean(radius * (selected == label).numpy())))
    return acrs[0], acrs[1]


def runner_up(name: str) -> str:
    """ACR of the same counts by the runner-up's bound; nothing for a log without them."""
    both = by_both_bounds(name)
    return "" if both is None else f"{both[1]:.3f} †"


def _entry(key: str) -> Entry:
    [entry] = [entry for entry in entries() if entry.key == key]
    return entry


def _training(key: str, sigma: float) -> str:
    entry = _entry(key)
    return f"{entry.seconds[str(sigma)]:g} s, one {entry.hardware}"


# tables


def readme_table() -> str:
    """The results of README.md, and below them how they were certified."""
    rows = []
    for key, sigma in (*(("record", sigma) for sigma in SIGMAS), ("fast", 0.5)):
        name = f"cifar10-{sigma:.2f}-{key}"
        rows.append(
            (
                code(f"{key}/cifar10-{sigma:.2f}"), f"**{acr(name)}**",
                gain_on_best(key, sigma), gain(name, f"macer_sigma{sigma}"),
                runner_up(name), _training(key, sigma),
            )
        )  # fmt: skip
    head = ("CIFAR-10", "ACR", "− Sun et al.", "− MACER", "runner-up's bound", "training")
    log = log_of("cifar10-0.50-record")
    images = f"Every 5th test image ({thousands(len(log.idx))})"
    settings = (
        f"{images}, n = {thousands(log.n)}, α = {log.alpha}, seed 0; ACR by Cohen et al.'s bound"
    )
    return unbroken(f"{table(head, rows)}\n{settings}")


def gain_on_best(key: str, sigma: float) -> str:
    """How much higher ACR is than Sun et al.'s, the best published, as the leaderboard has it."""
    shown = board(sigma, "every-5th")
    assert shown.best == "sun"
    [row] = [row for row in shown.rows if row.method == key]
    assert row.to_best is not None
    return _difference(row.to_best)


def records() -> str:
    """The records and the fast models, and their differences to published logs."""
    rows, names = [], classes_of("cifar10")
    for key in ("record", "fast"):
        for sigma in SIGMAS:
            name, at = f"cifar10-{sigma:.2f}-{key}", f"sigma{sigma}"
            log = log_of(name)
            lost = [
                class_text(c.label, names, f"{c.correct} of {c.images} right")
                for c in given_up(log)
            ]
            rows.append(
                (
                    code(f"{key}/cifar10-{sigma:.2f}"), f"**{acr(name)}**", runner_up(name),
                    gain_on_best(key, sigma),
                    *(gain(name, f"{other}_{at}") for other in ("cat-rs", "macer")),
                    f"{certified_accuracy(log, [0.0])[0]:.3f}", "; ".join(lost),
                    _training(key, sigma),
                )
            )  # fmt: skip
    head = (
        "recipe", "ACR, Cohen et al.'s bound", "runner-up's",
        "− Sun et al.'s log", "− CAT-RS' log", "− MACER's log",
        "accuracy", "classes given up", "training",
    )  # fmt: skip
    return table(head, rows)


def objectives() -> str:
    """The objectives on MNIST by σ, by both bounds, and as published."""
    rows = []
    for i, sigma in enumerate(SIGMAS):
        for key, (name, published) in OBJECTIVES.items():
            log = f"mnist-{sigma:.2f}-{key}"
            theirs = published[i]
            rows.append(
                (setting(sigma), name, acr(log), runner_up(log), f"{theirs:.3f}" if theirs else "")
            )
    return table(("σ", "objective", "ACR, Cohen et al.'s bound", "runner-up's", "published"), rows)


def scores() -> str:
    """ACR by both bounds, and certified accuracy, of every log in results/."""
    rows = []
    for file in sorted(RESULTS.glob("*.tsv.gz")):
        name = file.name.removesuffix(".tsv.gz")
        log = log_of(name)
        accuracies = [f"{a:.3f}" if a else "" for a in certified_accuracy(log, RADII)]
        counts = (thousands(len(log.idx)), thousands(log.n))
        rows.append((code(name), acr(name), runner_up(name), *accuracies, *counts))
    radii = [setting(radius) for radius in RADII]
    return table(("log", "ACR", "runner-up", *radii, "images", "n"), rows)


if __name__ == "__main__":
    sys.stdout.write(readme_table())
