"""The flags of `macer train RECIPE`: those of the recipe, of its loss, and those of neither."""

from pathlib import Path

import pytest

from macer.cli.app import main
from macer.runs.run import Run

OWN = """
def loss(batch, *, count: int = 3, few: int | None = None, upper_B: float = 1.0, k_: bool = True):
    return batch.logits().square().mean((1, 2))
def resume(batch, *, resume: bool = False): ...
def help(batch, *, help: float = 1.0): ...
def json(batch, *, json: float = 1.0): ...
def no_flip(batch, *, no_flip: float = 1.0): ...
def no_own(batch, *, on: bool = True, no_on: bool = True): ...
def no_type(batch, *, a=None): ...
"""
LITTLE = ["--labelled", "32", "--batch", "32", "--epochs", "1", "--k", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("flag_losses.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    return err.removeprefix("macer: ").rstrip("\n")


# law


def test_flags_have_the_names_of_the_settings(folder: Path) -> None:
    flags = ["--count", "5", "--few", "2", "--upper-B", "3", "--no-k-"]
    run = ["--loss", "flag_losses:loss", *flags, "--out", "run"]
    assert main(["train", "demo", *LITTLE, *run]) == 0
    recipe = Run(folder / "run").read_manifest()["recipe"]
    settings = {"count": 5, "few": 2, "upper_B": 3.0, "k_": False}
    assert recipe["loss"] == {"name": "flag_losses:loss", **settings}
    assert recipe["k"] == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--empty-lr-decays", "demo", "--lr-schedule", "cosine"],
        ["demo", "--lr_schedule", "cosine", "--empty-lr-decays"],
        ["--no-flip", "demo", "--lr-schedule=cosine", "--empty-lr-decays"],
    ],
)
def test_flags_are_spelt_as_the_help_and_as_the_fields_are(folder: Path, flags: list[str]) -> None:
    assert main(["train", *flags, *LITTLE, "--out", "run"]) == 0
    recipe = Run(folder / "run").read_manifest()["recipe"]
    assert (recipe["lr_schedule"], recipe["lr_decays"]) == ("cosine", [])


# refusal


@pytest.mark.parametrize("setting", ["count", "few"])
def test_a_whole_number_is_not_truncated(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(capsys, "demo", "--loss", "flag_losses:loss", f"--{setting}", "4.5")
    assert error == f"Invalid value for --{setting}: must be a whole number, got 4.5"


@pytest.mark.parametrize("name", ["resume", "help", "json", "no_flip"])
def test_a_setting_named_like_a_flag_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(capsys, "demo", "--loss", f"flag_losses:{name}")
    assert error.startswith(f"the loss flag_losses:{name} must not have a setting {name}, which is")


def test_a_setting_named_like_the_negative_of_another_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = refusal(capsys, "demo", "--loss", "flag_losses:no_own")
    assert "must not have a setting no_on, which is a flag of macer train" in error


@pytest.mark.parametrize("flags", [[], ["--lam", "3"], ["--lam", "demo"], ["--resume"]])
def test_no_recipe_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(capsys, *flags)
    assert error == "train must have a recipe, got none; `macer recipes` lists them"


def test_words_that_are_no_flags_are_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in refusal(capsys, "demo", "--settings", "3")
    assert "did you mean 'lam'?" in refusal(capsys, "demo", "--lamm", "3")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[loss]\nlam = 2", "loss must be a table with the name of one and its settings, got {"),
        ("[loss]\nname = 2", "loss must be a table with the name of one and its settings, got {"),
        ('[[loss]]\nname = "macer"', "loss must be a table with the name of one and its settings"),
        ("loss = 3", "loss must be a Loss, the name of one, or a table with a name and settings, "),
        ('[loss]\nname = "macre"', "unknown loss 'macre', did you mean 'macer'?; choose from "),
        ('[loss]\nname = "macer"\n[loss.more]\nlam = 3', "the loss macer has no setting 'more'"),
    ],
)
def test_a_mistake_in_a_file_says_which_file(
    table: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.toml").write_text(f"{table}\n")
    assert refusal(capsys, "mine.toml").startswith(f"recipe mine.toml: {message}")


def test_a_mistake_in_a_flag_names_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(capsys, "demo", "--loss", "flag_losses:no_type")
    assert error.startswith("the setting a of the loss flag_losses:no_type must be")
