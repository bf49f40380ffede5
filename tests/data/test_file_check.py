"""Damaged, grey, CMYK and tiny files among ImageNet's: refused or left out before a training."""

from pathlib import Path

import numpy as np
import pytest
from data_files import refused
from PIL import Image
from small_imagenet import WNIDS, make_imagenet, picture, recipe_of

from macer.cli.app import main
from macer.data.file_check import refuse_damaged
from macer.data.photographs import Rules
from macer.data.sets import load
from macer.training.loop import train

SKIP = Rules(skip_damaged=True)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """ImageNet with a truncated, a foreign, an empty, a grey, a CMYK and a tiny file."""
    folder = make_imagenet(tmp_path) / "imagenet/train" / WNIDS[0]
    whole = (folder / f"{WNIDS[0]}_0.JPEG").read_bytes()
    (folder / "cut.JPEG").write_bytes(whole[: len(whole) // 2])
    (folder / "text.JPEG").write_bytes(b"<html>not found</html>")
    (folder / "empty.JPEG").touch()
    picture(1).convert("L").save(folder / "grey.JPEG")
    picture(2).convert("CMYK").save(folder / "cmyk.JPEG")
    Image.new("RGB", (1, 1), "red").save(folder / "tiny.JPEG")
    (folder / "tail.JPEG").write_bytes(whole + b"\0\0")  # whole, with something behind its end
    return tmp_path


# law


def test_damaged_files_are_left_out_and_counted_and_all_others_are_read(odd):
    split = load("imagenet", "train", odd, rules=SKIP)
    names = {Path(name).name for name in split.images.names}
    assert len(split.images) == 12 + 4 and {"grey.JPEG", "cmyk.JPEG", "tiny.JPEG"} <= names
    assert [Path(name).name for name, _ in split.account.damaged] == [
        "cut.JPEG", "empty.JPEG", "text.JPEG",
    ]  # fmt: skip
    told = "\n".join(split.account.lines())
    assert "16 images in 3 classes: 16 JPEG" in told
    assert "left out 3 damaged files" in told
    assert "1 grey made RGB" in told and "1 CMYK made RGB" in told
    assert [WNIDS[label] for label in split.labels] == [
        name.split("/")[0] for name in split.images.names
    ]
    for i in range(len(split.images)):
        part = split.images.part(i, 0.08, np.random.default_rng(i))
        assert part.shape == split.images.middle(i).shape == (3, 224, 224)


def test_what_is_left_out_does_not_move_what_is_kept(odd):
    every = load("imagenet", "train", odd).images.names
    kept = load("imagenet", "train", odd, rules=SKIP).images.names
    assert kept == [name for name in every if name in kept]


def test_a_folder_without_damage_is_the_same_with_and_without_the_flag(tmp_path):
    data = make_imagenet(tmp_path)
    one, other = load("imagenet", "train", data), load("imagenet", "train", data, rules=SKIP)
    assert one.images.names == other.images.names
    assert one.labels.tolist() == other.labels.tolist()
    refuse_damaged(one.images)


@pytest.mark.medium
def test_the_command_trains_without_them_and_lists_them(odd, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--model", "tiny_models:tiny", "--batch", "4", "--epochs", "1", "--device", "cpu"]
    arguments = ["train", "paper/imagenet-0.25", *small, "--data", str(odd), "--out", "run"]
    assert main(arguments) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "cut.JPEG must be a whole PNG, JPEG" in told and told.endswith(
        "and 2 others are damaged too; mend or remove them, or add --skip-damaged to go on "
        "without them"
    )
    assert not Path("run").exists()
    assert main([*arguments, "--skip-damaged"]) == 0
    assert "left out 3 damaged files" in capsys.readouterr().err
    listed = Path("run/skipped-train.tsv").read_text()
    assert listed.count("\n") == 4 and "text.JPEG" in listed


# refusal


def test_a_training_is_refused_before_its_first_step(odd, tmp_path):
    split = load("imagenet", "train", odd)
    with refused("and 2 others are damaged too"):
        train(recipe_of(), split, WNIDS, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_split_of_damaged_files_alone_is_refused(tmp_path):
    folder = tmp_path / "imagenet/train" / WNIDS[0]
    folder.mkdir(parents=True)
    (folder / "a.JPEG").write_bytes(b"nothing")
    with refused("must have an undamaged image, got 1 damaged"):
        load("imagenet", "train", tmp_path, rules=SKIP)
