"""Three seeds of each recipe, made up: tables, README and leaderboard say what they give."""

import gzip
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import result_tables
from pages import ROOT
from result_tables import SIGMAS, trainings

from macer.data.selection import Selection
from macer.experiments import leaderboard as making
from macer.experiments.leaderboard import figures
from macer.experiments.other_bound import by_bound
from macer.reporting import leaderboard, leaderboard_notes
from macer.reporting import leaderboard_forms as forms
from macer.reporting.leaderboard import board
from macer.reporting.logs import read_log, select
from macer.reporting.scores import average_certified_radius, standard_error
from macer.runs.names import TABLE
from macer.runs.zoo import shipped_certificates

RESULTS = ROOT / "results"


def mixed(file: Path, own: str, other: str, every: int) -> None:
    """A log made up of two others: every so many images have the second's certificates."""
    logs = [(shipped_certificates(name) / TABLE).read_bytes().split(b"\n") for name in (own, other)]
    lines = [pair[every > 0 and i % every == 1] for i, pair in enumerate(zip(*logs, strict=True))]
    file.write_bytes(gzip.compress(b"\n".join(lines)))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/ of σ 0.5 with three seeds, the zoo's model as seed 0.

    CAT-RS' log stands for the one that is not shipped.
    """
    folder = tmp_path_factory.mktemp("three") / "results"
    (folder / "others").mkdir(parents=True)
    shutil.copytree(RESULTS / "published", folder / "published")
    names = {key: f"zoo:cifar10-0.50-{key}" for key in ("record", "fast")}
    for key, other in (("record", "fast"), ("fast", "record")):
        for end, every in (("", 0), ("-seed-1", 2), ("-seed-2", 4)):
            mixed(folder / f"cifar10-0.50-{key}{end}.tsv.gz", names[key], names[other], every)
    shutil.copy(folder / "published/cat-rs_sigma0.5.tsv.gz", folder / "others/sun_sigma0.5.tsv.gz")
    return folder


@pytest.fixture(scope="module")
def made(three: Path):
    """The leaderboard's figures of σ 0.5 from these logs, as they are stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "sigmas", lambda: [0.5])
        contents = figures(three / "published", three / "others")
    return tuple(json.loads(making.text_of(content)) for content in contents)


@pytest.fixture
def here(three, made, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(leaderboard, "_figures", lambda: made)
    leaderboard._differences.cache_clear()
    entry = result_tables._entry
    seconds = {"0.5": (391, 401)}
    monkeypatch.setattr(result_tables, "_entry", lambda key: replace(entry(key), seconds=seconds))
    monkeypatch.setattr(result_tables, "RESULTS", three)
    monkeypatch.setattr(result_tables, "SIGMAS", (0.5,))
    monkeypatch.setattr(result_tables, "_over_all_images", str)
    yield three
    leaderboard._differences.cache_clear()


def acrs_of(folder: Path, key: str, bound: str = "clopper-pearson") -> list[float]:
    names = (f"cifar10-0.50-{key}{end}.tsv.gz" for end in ("", "-seed-1", "-seed-2"))
    return [average_certified_radius(by_bound(folder / name, bound)) for name in names]


# law


@pytest.mark.medium
def test_the_tables_have_the_mean_of_three_seeds_by_both_bounds(here: Path):
    for line, key in zip(
        result_tables.records().splitlines()[2:4], ("record", "fast"), strict=True
    ):
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        acrs = acrs_of(here, key)
        assert cells[0] == f"`{key}/cifar10-0.50`"
        assert cells[1].startswith(f"{np.mean(acrs):.3f} ± ")
        assert cells[2] == f"{np.mean(acrs_of(here, key, 'runner-up')):.3f} †"
        assert cells[3:5] == ["mean of 3 seeds", f"{np.std(acrs, ddof=1):.3f}"]
        for cell, name in zip(cells[5:8], ("cat-rs", "cat-rs", "macer"), strict=True):
            log = select(read_log(RESULTS / f"published/{name}_sigma0.5.tsv.gz"), Selection(skip=5))
            gain = float(np.mean(acrs)) - average_certified_radius(log)
            assert cell.startswith(f"{gain:+.3f} ± ".replace("-", "−"))
        images, seeds = (
            standard_error(read_log(here / f"cifar10-0.50-{key}.tsv.gz")),
            np.std(acrs, ddof=1),
        )
        error = float(cells[1].split(" ± ")[1])
        assert math.hypot(images, seeds / math.sqrt(3)) == pytest.approx(error, rel=0.1)


def test_each_seed_has_a_row_and_the_median_is_marked(here: Path):
    rows = [line.strip("| ").split(" | ") for line in result_tables.seeds().splitlines()[2:]]
    assert [row[:2] for row in rows] == [
        [f"`{key}/cifar10-0.50`", str(seed)] for key in ("record", "fast") for seed in range(3)
    ]
    assert [float(row[2].split(" ± ")[0]) for row in rows] == pytest.approx(
        acrs_of(here, "record") + acrs_of(here, "fast"), abs=6e-4
    )
    assert [row[6] for row in rows] == 2 * ["391", "401", "?"]
    marks = [row[7] if len(row) > 7 else "" for row in rows]
    assert marks == ["in the zoo", "", "median", "in the zoo", "", "median"]


def test_the_readme_says_of_how_many_seeds_its_figures_are_the_mean(here: Path):
    table = result_tables.readme_table().replace("\N{NO-BREAK SPACE}", " ")
    assert f"**{np.mean(acrs_of(here, 'record')):.3f} ± " in table
    assert table.count("| 396 s, one H200 |") == 2  # of those whose seconds are known
    notes = result_tables.readme_notes()
    assert notes.startswith("Means of 3 seeds, ± over these too. Under 5% right: ")
    assert notes.endswith(" no class.")


def test_the_leaderboard_says_what_three_seeds_gave(here: Path):
    one = board(0.5, "every-5th")
    [note] = [text for text in leaderboard_notes.notes([one]) if text.startswith("macer record")]
    first, second, third = (f"{acr:.3f}" for acr in acrs_of(here, "record"))
    assert note.startswith(
        f"macer record, σ 0.5: seeds 0, 1, 2 have ACR {first}, {second}, {third}, s 0.0"
    )
    assert (
        f"({np.mean(acrs_of(here, 'record', 'runner-up')):.3f} † by the runner-up's bound)" in note
    )
    assert note.endswith("The median is seed 2; the row is seed 0.")
    assert leaderboard_notes.ONE_SEED not in leaderboard_notes.notes(
        [one]
    ) and leaderboard_notes.SEEDS in leaderboard_notes.notes([one])
    assert forms.latex([one]).isascii()
    row = next(row for row in one.rows if row.method == "record")
    sun = next(row for row in one.rows if row.method == "sun")
    gain = np.mean(acrs_of(here, "record")) - sun.acr
    assert row.over_seeds.to_best.difference == pytest.approx(gain, abs=3e-6)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("key", ["record", "fast"])
def test_the_zoo_keeps_the_median_seed_and_every_seconds_are_known(key: str, sigma: float):
    """Of an even number of seeds, either of the middle two."""
    [row] = [row for row in board(sigma, "every-5th").rows if row.method == key]
    seeds = row.over_seeds
    assert seeds.mean.seeds == tuple(trainings(key, sigma)), "make the leaderboard's figures anew"
    ordered = sorted(zip(seeds.mean.acrs, seeds.mean.seeds, strict=True))
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    assert seeds.zoo in [seed for _, seed in middle], "the zoo must keep the median seed's model"
    assert "?" not in result_tables._seconds(key, sigma)
    assert seeds.to_best.difference == pytest.approx(
        seeds.mean.acr - max(r.acr for r in board(sigma, "every-5th").rows if not r.load), abs=3e-6
    )


# refusal


def test_figures_of_other_logs_than_those_here_are_refused(here: Path, made, monkeypatch):
    stale = json.loads(json.dumps(made))
    for found in stale[0]["seeds"]:
        found["mean"]["acrs"] = found["mean"]["acrs"][:1]
    monkeypatch.setattr(leaderboard, "_figures", lambda: stale)
    with pytest.raises(
        SystemExit, match=r"must be of the logs in .*: python -m macer\.experiments"
    ):
        result_tables.records()
