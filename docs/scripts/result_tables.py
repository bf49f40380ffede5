"""Tables of the documentation that are computed from the certificates in results/.

python docs/scripts/result_tables.py

prints the table of README.md and what stands below it of seeds and classes; a test compares them
with what stands there. A recipe's figures are means over the seeds whose logs lie in results/:
cifar10-0.50-record.tsv.gz is of seed 0, cifar10-0.50-record-seed-1.tsv.gz of seed 1.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from macer.data.sets import classes_of
from macer.experiments.other_bound import OTHER, by_bound
from macer.reporting.leaderboard import Entry, Seeds, entries, seeds_of
from macer.reporting.logs import CertificateLog, read_log
from macer.reporting.scores import (
    Difference,
    average_certified_radius,
    certified_accuracy,
    given_up,
    standard_error,
)
from macer.reporting.seeds import OverSeeds, mean_difference, over_seeds, seed_files
from macer.reporting.texts import setting, signed_with_error, thousands, with_error
from macer.system.text import unbroken

RESULTS = Path(__file__).parents[2] / "results"
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
SIGMAS = (0.25, 0.5, 1.0)
KEYS = ("record", "fast")  # our recipes of CIFAR-10 with several seeds, by their folders
SUN = "sun"  # the best published method
MAKE = "python -m macer.experiments.leaderboard results/published FOLDER"

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


_read = cache(read_log)


def log_of(name: str) -> CertificateLog:
    """A log of results/ by its name."""
    return _read(RESULTS / f"{name}.tsv.gz")


def acr(name: str) -> str:
    """ACR with its standard error over the images."""
    return with_error(average_certified_radius(log_of(name)), standard_error(log_of(name)))


def by_both_bounds(name: str) -> tuple[float, float] | None:
    """ACR by Clopper and Pearson's bound and by the runner-up's, from the counts of a log alone."""
    file = RESULTS / f"{name}.tsv.gz"
    logs = [by_bound(file, bound) for bound in ("clopper-pearson", OTHER)]
    acrs = [average_certified_radius(log) for log in logs if log is not None]
    return (acrs[0], acrs[1]) if len(acrs) == 2 else None


def runner_up(name: str) -> str:
    """ACR of the same counts by the runner-up's bound; nothing for a log without them."""
    other = by_bound(RESULTS / f"{name}.tsv.gz")
    return "" if other is None else f"{average_certified_radius(other):.3f} †"


def _entry(key: str) -> Entry:
    [entry] = [entry for entry in entries() if entry.key == key]
    return entry


# seeds


def trainings(key: str, sigma: float) -> dict[int, Path]:
    """The logs of one of our recipes of CIFAR-10, by seed."""
    return seed_files(RESULTS, f"cifar10-{sigma:.2f}-{key}")


def _logs(key: str, sigma: float) -> dict[int, CertificateLog]:
    return {seed: _read(file) for seed, file in trainings(key, sigma).items()}


def _mean(key: str, sigma: float) -> OverSeeds:
    return over_seeds(_logs(key, sigma))


def _other_mean(key: str, sigma: float) -> str:
    """The mean of the seeds' ACRs by the runner-up's bound."""
    others = [by_bound(file) for file in trainings(key, sigma).values()]
    return f"{np.mean([average_certified_radius(log) for log in others if log]):.3f} †"


def _to(key: str, sigma: float, other: str) -> Difference:
    """The mean of the seeds' ACRs minus that of a published log, on the same images, paired."""
    if other == SUN:
        return _stored(key, sigma).to_best
    return mean_difference(_logs(key, sigma), log_of(f"published/{other}_sigma{sigma}"))


def _stored(key: str, sigma: float) -> Seeds:
    """What the leaderboard has of a recipe's seeds, if it was made from the logs that are here."""
    stored, acrs = seeds_of(key, sigma, SUN), _mean(key, sigma).acrs
    if len(acrs) != len(stored.mean.acrs) or not np.allclose(stored.mean.acrs, acrs, atol=1e-6):
        raise SystemExit(f"the leaderboard's figures must be of the logs in {RESULTS}: {MAKE}")
    return stored


def _gain(difference: Difference) -> str:
    return signed_with_error(difference.difference, difference.standard_error)


def _count(key: str, sigma: float) -> str:
    """How many seeds: one seed, or the mean of several."""
    count = len(trainings(key, sigma))
    return "one seed" if count == 1 else f"mean of {count} seeds"


def _seconds(key: str, sigma: float) -> list[str]:
    """The seconds of each seed's training; ? where entries.toml does not have them."""
    known = [_entry(key).seconds_at(sigma, seed) for seed in trainings(key, sigma)]
    return ["?" if seconds is None else f"{seconds:g}" for seconds in known]


def _training(key: str, sigma: float) -> str:
    """What one training took, the mean over the seeds."""
    known = [_entry(key).seconds_at(sigma, seed) for seed in trainings(key, sigma)]
    return f"{np.mean([each for each in known if each]):.0f} s, one {_entry(key).hardware}"


def lost_classes(log: CertificateLog) -> str:
    """The classes of CIFAR-10 with fewer than one image in twenty right, and how many are."""
    names = classes_of("cifar10")
    return ", ".join(f"{names[c.label]} ({c.correct} of {c.images})" for c in given_up(log))


# tables


def readme_table() -> str:
    """The results of README.md, and below them how they were certified."""
    rows = []
    for key, sigma in _readme_rows():
        mean = _mean(key, sigma)
        rows.append(
            (
                code(f"{key}/cifar10-{sigma:.2f}"),
                f"**{with_error(mean.acr, mean.standard_error)}**",
                *(_gain(_to(key, sigma, other)) for other in (SUN, "macer")),
                _other_mean(key, sigma), _training(key, sigma),
            )
        )  # fmt: skip
    head = ("CIFAR-10", "ACR", "− Sun et al.", "− MACER", "runner-up's bound", "training")
    log = log_of("cifar10-0.50-record")
    images = f"Every 5th test image ({thousands(len(log.idx))})"
    settings = f"{images}, n = {thousands(log.n)}, α = {log.alpha}; ACR by Cohen et al.'s bound"
    return unbroken(f"{table(head, rows)}\n{settings}")


def _readme_rows() -> list[tuple[str, float]]:
    return [*(("record", sigma) for sigma in SIGMAS), ("fast", 0.5)]


def readme_notes() -> str:
    """What README.md says of seeds, and of classes that the records give up."""
    counts = [len(trainings(key, sigma)) for key, sigma in _readme_rows()]
    seeds = "One seed each."
    if max(counts) > 1:
        which = f"{max(counts)}" if len(set(counts)) == 1 else ", ".join(map(str, counts))
        seeds = f"Means of {which} seeds, ± over these too."
    lost = [f"at σ {setting(sigma)} {text}" for sigma in SIGMAS if (text := _lost(sigma))]
    return f"{seeds} Under 5% right: {', '.join(lost) or 'no class'}."


def _lost(sigma: float) -> str:
    """The classes that the record gives up: of one seed its counts, of several how many do."""
    logs = _logs("record", sigma)
    if len(logs) == 1:
        return lost_classes(logs[0])
    names = classes_of("cifar10")
    found = Counter(names[one.label] for log in logs.values() for one in given_up(log))
    return ", ".join(f"{name} ({count} of {len(logs)})" for name, count in found.items())


def records() -> str:
    """The records and the fast models over their seeds, and differences to published logs."""
    rows = []
    for key in KEYS:
        for sigma in SIGMAS:
            mean = _mean(key, sigma)
            accuracies = [certified_accuracy(log, [0.0])[0] for log in _logs(key, sigma).values()]
            rows.append(
                (
                    code(f"{key}/cifar10-{sigma:.2f}"),
                    f"**{with_error(mean.acr, mean.standard_error)}**", _other_mean(key, sigma),
                    _count(key, sigma), "" if mean.spread is None else f"{mean.spread:.3f}",
                    *(_gain(_to(key, sigma, other)) for other in (SUN, "cat-rs", "macer")),
                    f"{np.mean(accuracies):.3f}",
                )
            )  # fmt: skip
    head = (
        "recipe", "ACR, Cohen et al.'s bound", "runner-up's", "seeds", "s over seeds",
        "− Sun et al.'s log", "− CAT-RS' log", "− MACER's log", "accuracy",
    )  # fmt: skip
    return f"{table(head, rows)}\n{_over_all_images()}\n"


def _over_all_images() -> str:
    """What the record at σ 1 makes of all test images, by CAT-RS' log of them."""
    whole = log_of("published/cat-rs_sigma1.0")
    to_cat_rs = _to("record", 1.0, "cat-rs")
    both = average_certified_radius(whole) + to_cat_rs.difference
    error = with_error(both, to_cat_rs.standard_error)
    return (
        f"The record at σ 1 makes about {error} over all test images, by CAT-RS' log of them and "
        "the difference."
    )


def seeds() -> str:
    """Each training of the records and the fast models."""
    rows = []
    for key in KEYS:
        for sigma in SIGMAS:
            mean, zoo, files = _mean(key, sigma), _stored(key, sigma).zoo, trainings(key, sigma)
            for (seed, file), seconds in zip(files.items(), _seconds(key, sigma), strict=True):
                name, log = file.name.removesuffix(".tsv.gz"), _read(file)
                marks = ["median"] if len(files) > 1 and seed == mean.median else []
                marks += ["in the zoo"] if seed == zoo else []
                rows.append(
                    (
                        code(f"{key}/cifar10-{sigma:.2f}"), str(seed), acr(name), runner_up(name),
                        f"{certified_accuracy(log, [0.0])[0]:.3f}", lost_classes(log) or "none",
                        seconds, ", ".join(marks),
                    )
                )  # fmt: skip
    hardware = _entry(KEYS[0]).hardware
    head = (
        "recipe", "seed", "ACR, Cohen et al.'s bound", "runner-up's", "accuracy",
        "classes with fewer than 5% right", f"training, s of one {hardware}", "",
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
    sys.stdout.write(f"{readme_table()}\n{readme_notes()}\n")
