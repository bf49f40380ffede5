"""The flags of `macer train RECIPE`, read before the command line knows them."""

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from desk import from_command_line

from macer.cli.app import main
from macer.losses import completed
from macer.recipes import Loss, named_recipe
from macer.runs.run import Run

DEMO = completed(named_recipe("demo"))


# law


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--empty-lr-decays"], {"lr_decays": ()}),
        (["--lr_decays", "3", "--lr-decays=5"], {"lr_decays": (3, 5)}),
        (["--lr-decays", "2", "3"], {"lr_decays": (2, 3)}),
        (["--lr-decays", "2", "3", "--k", "2"], {"lr_decays": (2, 3), "k": 2}),
        (["--cross_entropy", "copies"], {"cross_entropy": "copies"}),
        (["--no-flip", "--nesterov"], {"flip": False, "nesterov": True}),
        (["--lam=3"], {"lam": 3.0}),
        (["--loss", "stability"], {"loss": Loss("stability", lam=2.0)}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_every_spelling_of_a_flag_counts_before_and_after_the_recipe(flags, changes, first):
    arguments = [*flags, "demo"] if first else ["demo", *flags]
    assert from_command_line(*arguments) == DEMO.changed(**changes)


def test_a_flag_overrides_the_recipe_and_leaves_its_other_fields():
    flags = ("--sigma", "0.7", "--k", "3", "--no-flip", "--lam", "2")
    changed = from_command_line("paper/cifar10-1.00", *flags)
    expected = completed(named_recipe("paper/cifar10-1.00"))
    assert changed == expected.changed(sigma=0.7, k=3, flip=False, lam=2.0)


def test_another_loss_has_its_own_defaults_and_nothing_of_the_files():
    changed = from_command_line("paper/cifar10-0.25", "--loss", "consistency", "--eta", "0.2")
    expected = replace(named_recipe("paper/cifar10-0.25"), loss=Loss("consistency", eta=0.2))
    assert changed == completed(expected)


# refusal


def test_the_name_of_a_loss_is_no_path(tmp_path, capsys):
    """A file beyond macer's losses is not read, whatever is in it."""
    with TemporaryDirectory(prefix="strange_") as folder:  # with no hyphen, which is replaced
        Path(folder, "strange.py").write_bytes(b"\xff(")
        name = "../" * 40 + f"{folder}/strange".lstrip("/")
        (tmp_path / "own.toml").write_text(f'[loss]\nname = "{name}"\n')
        assert main(["train", str(tmp_path / "own.toml")]) == 2
    assert f"unknown loss '{name}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--k", "4.5", "Invalid value for --k: must be a whole number, got 4.5"),
        ("--batch", "0", "batch must be at least 1, got 0"),
        ("--sigmaa", "1", "unknown flag --sigmaa, did you mean 'sigma'?; the loss macer has the "),
        (
            "--eta",
            "3",
            "unknown flag --eta, did you mean 'beta'?; the loss macer has the settings ",
        ),
        ("--lam", "x", "Invalid value for --lam"),
        ("--gamma", "0", "gamma must be > 0, got 0.0"),
    ],
)
def test_a_mistaken_flag_is_refused(tmp_path, capsys, flag, value, message):
    assert main(["train", "demo", flag, value, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


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


@pytest.mark.medium
def test_the_help_of_a_recipe_shows_its_own_values(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for recipe in ("demo", "fast/cifar10-0.25"):
        assert main(["train", recipe, "--help"]) == 0
        words = " ".join(capsys.readouterr().out.replace("│", " ").split())
        shown[recipe] = [
            re.search(rf"--{flag} .*?\[default: (.*?)\]", words)[1]  # type: ignore[index]
            for flag in ("dataset", "model", "sigma", "epochs", "lr-decays", "lam")
        ]
    assert shown["demo"] == ["mnist-sample", "lenet", "0.5", "6", "(4,)", "4.0"]
    assert shown["fast/cifar10-0.25"] == ["cifar10", "wide14", "0.25", "180", "()", "8.0"]


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
