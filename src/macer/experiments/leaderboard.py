"""The leaderboard's figures, computed from logs: `python -m macer.experiments.leaderboard`.

Run it in a clone, after a log or an entry has changed:

    python -m macer.experiments.leaderboard results/published [FOLDER]

FOLDER has the logs that may not be copied; without it the figures computed from them stay. The
folder above results/published has a log for each seed of our recipes, see `seed_files`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from macer.data.selection import Selection
from macer.experiments.other_bound import by_bound
from macer.reporting.board_check import check_log
from macer.reporting.leaderboard import (
    COUNT,
    FIGURES,
    IMAGES,
    REFERENCE,
    Entry,
    ImageSet,
    Reading,
    Score,
    entries,
    sigmas,
)
from macer.reporting.logs import CertificateLog, read_log, select
from macer.reporting.scores import (
    average_certified_radius,
    certified_accuracy,
    paired_difference,
    standard_error,
)
from macer.reporting.seeds import mean_difference, over_seeds, seed_files
from macer.reporting.tables import RADII
from macer.runs.names import TABLE
from macer.runs.zoo import PREFIX, shipped_certificates
from macer.system.errors import Mistake
from macer.system.files import write_file

DIGITS = 6  # of stored figures: what summation leaves the same on every machine

ABOUT = "Made by `python -m macer.experiments.leaderboard results/published` from the logs there."
FIGURES_ONLY = (
    "Figures only: made by `python -m macer.experiments.leaderboard results/published FOLDER` from "
    "logs of https://github.com/eth-sri/acr-weakness, which has no licence file, and their "
    "differences to other logs. entries.toml names the source of each."
)

LISTS = ("scores", "differences", "seeds", "seed_differences")  # of a file of figures

Logs = Mapping[str, CertificateLog]  # by the method's key


def figures(folder: Path, unshipped: Path | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of both files of figures; the second has none without the folder."""
    shipped: dict[str, Any] = {"about": ABOUT, **{name: [] for name in LISTS}}
    others: dict[str, Any] = {"about": FIGURES_ONLY, **{name: [] for name in LISTS}}
    for sigma in sigmas():
        here = [entry for entry in entries() if sigma in entry.sigmas]
        here = [entry for entry in here if entry.shipped or unshipped]
        logs = {
            entry.key: _log(entry, sigma, folder if entry.shipped else unshipped) for entry in here
        }
        ours = [entry for entry in here if entry.ours]
        chosen = {entry.key: _by_runner_up(entry, sigma) for entry in ours}
        for log in logs.values():
            check_log(log, sigma, logs[REFERENCE])
        kept = {entry.key for entry in here if entry.shipped}
        for images in IMAGES:
            for key, score in _scores(logs, chosen, sigma, images).items():
                (shipped if key in kept else others)["scores"].append(asdict(score))
            for pair in _differences(logs, sigma, images):
                both = {pair["a"], pair["b"]} <= kept
                (shipped if both else others)["differences"].append(pair)
        for entry in ours:
            seeds = _of_seeds(entry, sigma, folder.parent, logs)
            shipped["seeds"].append(_seed_figures(entry, sigma, seeds))
            for pair in _seed_differences(entry, sigma, seeds, logs):
                (shipped if pair["b"] in kept else others)["seed_differences"].append(pair)
    return shipped, others


def _log(entry: Entry, sigma: float, folder: Path | None) -> CertificateLog:
    name = entry.log_at(sigma)
    place = shipped_certificates(name) if entry.ours else (folder or Path()) / name
    return replace(read_log(place), name=name)


def _by_runner_up(entry: Entry, sigma: float) -> CertificateLog:
    """The log of the same counts by the other bound."""
    return _other(shipped_certificates(entry.log_at(sigma)) / TABLE)


def _other(file: Path) -> CertificateLog:
    log = by_bound(file)
    if log is None:
        raise Mistake(f"{file} must have the column counts; `macer certify` writes it")
    return log


def _of_seeds(
    entry: Entry, sigma: float, folder: Path, logs: Logs
) -> dict[int, tuple[Path, CertificateLog]]:
    """The logs of a recipe's trainings, by seed; each can stand on a board."""
    found = seed_files(folder, entry.log_at(sigma).removeprefix(PREFIX))
    seeds = {seed: (file, read_log(file)) for seed, file in found.items()}
    for _, log in seeds.values():
        check_log(log, sigma, logs[REFERENCE])
    return seeds


def _seed_figures(
    entry: Entry, sigma: float, seeds: Mapping[int, tuple[Path, CertificateLog]]
) -> dict[str, Any]:
    """The mean over the seeds by both bounds, and which seed's model the zoo has."""
    logs = {seed: log for seed, (_, log) in seeds.items()}
    found, other = over_seeds(logs), over_seeds({s: _other(file) for s, (file, _) in seeds.items()})
    shown = read_log(shipped_certificates(entry.log_at(sigma)))
    same = [seed for seed, log in logs.items() if np.array_equal(log.radius, shown.radius)]
    return {
        "sigma": sigma,
        "method": entry.key,
        "mean": {
            "seeds": found.seeds,
            "acrs": _rounded(found.acrs),
            "acr": round(found.acr, DIGITS),
            "spread": None if found.spread is None else round(found.spread, DIGITS),
            "standard_error": round(found.standard_error, DIGITS),
            "median": found.median,
        },
        "runner_up": _rounded([other.acr, other.standard_error]),
        "zoo": same[0] if same else None,
    }


def _seed_differences(
    entry: Entry, sigma: float, seeds: Mapping[int, tuple[Path, CertificateLog]], logs: Logs
) -> list[dict[str, Any]]:
    """The paired difference of the mean over the seeds to each published log."""
    own = {seed: log for seed, (_, log) in seeds.items()}
    published = {one.key for one in entries() if not one.ours}
    found = []
    for key in (key for key in logs if key in published):
        gain = mean_difference(own, logs[key])
        values = _rounded([gain.difference, gain.standard_error])
        pair = {"sigma": sigma, "a": entry.key, "b": key}
        found.append({**pair, "difference": values[0], "standard_error": values[1]})
    return found


def _scores(logs: Logs, chosen: Logs, sigma: float, images: ImageSet) -> dict[str, Score]:
    """The scores of the logs that have all these images."""
    scores = {}
    for key, log in _having(logs, images).items():
        reading = None
        if key in chosen:
            other = select(chosen[key], Selection(skip=IMAGES[images]))
            reading = Reading(*_rounded([average_certified_radius(other), standard_error(other)]))
        acr, error = _rounded([average_certified_radius(log), standard_error(log)])
        accuracies = tuple(_rounded(certified_accuracy(log, RADII)))
        scores[key] = Score(sigma, images, key, acr, error, accuracies, reading)
    return scores


def _differences(logs: Logs, sigma: float, images: ImageSet) -> list[dict[str, Any]]:
    """The paired difference of every two logs that have all these images."""
    found = []
    for (a, log), (b, other) in combinations(_having(logs, images).items(), 2):
        difference = paired_difference(log, other)
        gain, error = _rounded([difference.difference, difference.standard_error])
        found.append(
            {
                "sigma": sigma,
                "images": images,
                "a": a,
                "b": b,
                "difference": gain,
                "standard_error": error,
            }
        )
    return found


def _having(logs: Logs, images: ImageSet) -> dict[str, CertificateLog]:
    """These images of the logs that have them all."""
    count = COUNT // IMAGES[images]
    narrowed = {key: select(log, Selection(skip=IMAGES[images])) for key, log in logs.items()}
    return {key: log for key, log in narrowed.items() if len(log.idx) == count}


def _rounded(values: Sequence[float] | np.ndarray[Any, Any]) -> list[float]:
    return [round(float(value), DIGITS) for value in values]


def text_of(content: Mapping[str, Any]) -> str:
    """A file of figures: JSON with one record in a line."""
    parts = [f'"about": {json.dumps(content["about"])}']
    for name in LISTS:
        lines = ",\n".join(json.dumps(record) for record in content[name])
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str]) -> None:
    """Write the files of figures into the package."""
    folders = [Path(argument) for argument in arguments]
    if len(folders) not in (1, 2):
        raise SystemExit("give the folder of published logs, and that of logs without a licence")
    made = figures(*folders)
    place = Path(__file__).parents[1] / "assets" / "leaderboard"
    for name, content in list(zip(FIGURES, made, strict=True))[: len(folders)]:
        write_file(place / name, text_of(content).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
