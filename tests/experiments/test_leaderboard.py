"""The leaderboard's figures follow from the logs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from macer.experiments import leaderboard
from macer.experiments.leaderboard import figures, text_of
from macer.reporting.leaderboard import FOLDER
from macer.reporting.logs import CertificateLog, read_log

PUBLISHED = Path(__file__).parents[2] / "results/published"


@pytest.fixture(scope="module")
def macer() -> CertificateLog:
    return read_log(PUBLISHED / "macer_sigma0.5.tsv.gz")


# reference


@pytest.mark.slow
def test_the_stored_figures_follow_from_the_logs():
    shipped, others = figures(PUBLISHED)
    assert text_of(shipped) == (FOLDER / "figures.json").read_text("utf-8")
    assert all(others[name] == [] for name in leaderboard.LISTS)
    stored = json.loads((FOLDER / "figures-only.json").read_text("utf-8"))
    assert stored["about"] == others["about"]


# law


def test_a_method_without_its_log_has_no_stored_figures_elsewhere():
    """What the shipped file says must not rest on a log that is not there."""
    kept = json.loads((FOLDER / "figures.json").read_text("utf-8"))
    methods = {(entry["method"], entry["sigma"]) for entry in kept["scores"]}
    methods |= {(entry[c], entry["sigma"]) for entry in kept["differences"] for c in "ab"}
    assert not {("sun", 0.25), ("sun", 0.5), ("sun", 1.0), ("smoothmix", 1.0)} & methods


@pytest.mark.medium
def test_logs_of_a_folder_without_a_licence_stay_apart(tmp_path, monkeypatch, macer):
    """MACER's log, halved, in place of the log of Sun et al."""
    entries = {entry.key: entry for entry in leaderboard.entries()}
    chosen = tuple(replace(entries[key], sigmas=(0.5,)) for key in ("macer", "sun"))
    monkeypatch.setattr(leaderboard, "entries", lambda: chosen)
    monkeypatch.setattr(leaderboard, "sigmas", lambda: [0.5])
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    for values in zip(macer.idx, macer.label, macer.predict, macer.radius / 2, strict=True):
        lines.append("\t".join(map(str, [*values, int(values[1] == values[2]), 0])))
    (tmp_path / "sun_sigma0.5.tsv.gz").write_text("\n".join(lines))
    shipped, others = figures(PUBLISHED, tmp_path)
    assert {entry["method"] for entry in shipped["scores"]} == {"macer"}
    assert shipped["differences"] == []
    assert [entry["method"] for entry in others["scores"]] == ["sun", "sun"]
    for pair, own, half in zip(
        others["differences"], shipped["scores"], others["scores"], strict=True
    ):
        assert (pair["a"], pair["b"], pair["images"]) == ("macer", "sun", own["images"])
        assert half["acr"] == pytest.approx(own["acr"] / 2, abs=2e-6)
        assert pair["difference"] == pytest.approx(own["acr"] / 2, abs=2e-6)
        assert pair["standard_error"] == pytest.approx(own["standard_error"] / 2, abs=2e-6)


def test_without_that_folder_only_the_shipped_figures_are_written(tmp_path, monkeypatch):
    empty = {"about": "b", **{name: [] for name in leaderboard.LISTS}}
    made = ({**empty, "scores": [{"a": 1}]}, empty)
    monkeypatch.setattr(leaderboard, "figures", lambda *_: made)
    written = {}
    monkeypatch.setattr(leaderboard, "write_file", lambda file, text: written.update({file: text}))
    leaderboard.main(["published"])
    assert [file.name for file in written] == ["figures.json"]
    assert json.loads(next(iter(written.values()))) == made[0]
    leaderboard.main(["published", "others"])
    assert [file.name for file in written] == ["figures.json", "figures-only.json"]


# refusal


def test_no_folder_is_refused():
    with pytest.raises(SystemExit, match="give the folder of published logs"):
        leaderboard.main([])
