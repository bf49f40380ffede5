"""The flags of `macer train RECIPE`, read before the command line knows them."""

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


# refusal


def test_the_name_of_a_loss_is_no_path(tmp_path, capsys):
    """A file beyond macer's losses is not read, whatever is in it."""
    with TemporaryDirectory(prefix="strange_") as folder:  # with no hyphen, which is replaced
        Path(folder, "strange.py").write_bytes(b"\xff(")
        name = "../" * 40 + f"{folder}/strange".lstrip("/")
        (tmp_path / "own.toml").write_text(f'[loss]\nname = "{name}"\n')
        assert main(["train", str(tmp_path / "own.toml")]) == 2
    assert f"unknown loss '{name}'" in capsys.readouterr().err
