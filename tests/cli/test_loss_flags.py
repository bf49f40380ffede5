"""The flags of `macer train RECIPE`, read before the command line knows them."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from desk import from_command_line

from macer.cli.app import main
from macer.losses import completed
from macer.recipes import Loss, named_recipe

DEMO = completed(named_recipe("demo"))


# law


@pytest.mark.parametrize(
    ("flags", "changes"),
    [
        (["--empty-lr-decays"], {"lr_decays": ()}),
        (["--lr_decays", "3", "--lr-decays=5"], {"lr_decays": (3, 5)}),
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
    assert list(tmp_path.iterdir()) == []
