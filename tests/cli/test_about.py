"""`macer recipes` and `macer data`: lists with whole names."""

import re
from pathlib import Path

import pytest

from macer.cli.app import main
from macer.data.sets import DATASETS
from macer.recipes import recipe_names


def test_recipes_are_listed_with_their_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.strip()]
    assert [name for name in listed if name in recipe_names()] == recipe_names()
    [line] = [line for line in lines if line.split()[:1] == ["paper/cifar10-0.50-150-epochs"]]
    assert line.split()[1:] == ["macer", "resnet110", "0.5", "16", "4.0", "150"]


@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_terminal_shows_names_whole_too(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    for command, names in (("recipes", recipe_names()), ("data", list(DATASETS))):
        assert main([command]) == 0
        text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= int(columns)
        assert set(names) <= {line.split()[0] for line in text.splitlines() if line.strip()}


def test_data_sets_are_listed_with_place_source_and_licence(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "--data", "large"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(DATASETS) <= set(rows)
    for name, data_set in DATASETS.items():
        assert data_set.source in rows[name] and data_set.licence in rows[name]
    assert rows["cifar10"].split()[1] == "no"
    assert rows["folder"].split()[1] == "large"
