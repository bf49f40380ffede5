"""`macer recipes` and `macer data`: lists with whole names."""

import re
from pathlib import Path

import pytest

from macer.cli.app import main
from macer.data.sets import DATASETS
from macer.recipes import named_recipe, recipe_names, run_name
from macer.recipes.named import RECIPES, trained_before


def test_recipes_are_listed_with_their_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.strip()]
    assert [name for name in listed if name in recipe_names()] == recipe_names()
    [line] = [line for line in lines if line.split()[:1] == ["paper/cifar10-0.50-150-epochs"]]
    assert line.split()[1:] == ["cifar10", "resnet110", "0.5", "2,400"]
    [line] = [line for line in lines if line.split()[:1] == ["record/cifar10-0.50"]]
    assert line.split()[1:] == ["cifar10", "wide14", "0.5", "612", "0.784"]
    assert lines[-1].startswith("Begin with `macer train demo`, which needs no download.")


def test_a_recipe_is_printed_whole_with_what_to_train_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["recipes", "semi/mnist-sample"]) == 0
    out, err = capsys.readouterr()
    assert out == (RECIPES / "semi/mnist-sample.toml").read_text()
    first = "train first: macer train semi/mnist-sample-first\n"
    assert err == f"{first}train it: macer train semi/mnist-sample\n"
    assert main(["recipes", "denoiser/cifar10-0.25"]) == 0
    trained = "train it: macer train denoiser/cifar10-0.25 --init FILE\n"
    assert capsys.readouterr().err == trained  # of the classifier that it stands before


def test_recipes_are_listed_by_the_beginning_of_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["recipes", "catrs/c"]) == 0
    out = capsys.readouterr().out
    listed = [line.split()[0] for line in out.splitlines() if line.startswith(" catrs/")]
    assert listed == ["catrs/cifar10-0.25", "catrs/cifar10-0.50", "catrs/cifar10-1.00"]
    assert "Train gaussian/cifar10-0.50 before catrs/cifar10-0.50, whose teacher it is.\n" in out


def test_every_teacher_of_a_recipe_is_named_as_one_to_train_first() -> None:
    for name in recipe_names():
        recipe = named_recipe(name)
        named = [recipe.pseudo, recipe.loss.get("teacher")]
        teachers = [f"runs/{run_name(first)}" for first in trained_before(name)]
        assert teachers == [teacher for teacher in named if teacher]


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


def test_a_terminal_breaks_notes_between_words_and_a_pipe_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["recipes", "record/"]) == 0
    piped = [line for line in capsys.readouterr().out.splitlines() if line[:1] not in ("", " ")]
    assert max(map(len, piped)) > 80
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["recipes", "record/"]) == 0
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    shown = [line for line in out.splitlines() if line[:1] not in ("", " ")]
    assert max(map(len, shown)) <= 80
    assert " ".join(shown) == " ".join(piped)


@pytest.mark.slow
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
