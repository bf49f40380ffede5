"""What `macer plan` prints; its arithmetic is that of certification/budget.py."""

import json
from pathlib import Path

import pytest
import torch

from macer.certification import pace
from macer.certification.budget import Pace
from macer.cli.app import main
from macer.models.denoisers import Denoised
from macer.recipes import named_recipe
from macer.training import speed

LENET = ["plan", "lenet", "--dataset", "mnist-sample", "--sigma", "0.5", "--device", "cpu"]


@pytest.fixture(autouse=True)
def a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand samples and four steps a second, ready after ten seconds."""
    made = Pace(1000.0, 10.0, threads=1, task=5, rows=100, padded=False)
    monkeypatch.setattr(pace, "measured_pace", lambda *_, **__: made)
    monkeypatch.setattr(speed, "steps_per_second", lambda _: 4.0)


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main([*LENET, *flags]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *flags: str) -> dict:  # type: ignore[type-arg]
    return json.loads(printed(capsys, *flags, "--json"))  # type: ignore[no-any-return]


# law


@pytest.mark.medium
def test_every_line_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--radius", "0.25", "0.5", "1.0", "1.5", "--price", "12.5", "--images", "10000"]
    lines = printed(capsys, *flags, "--train", "demo").splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_training_and_certification_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, "--train", "demo", "--price", "3", "--n", "2000", "--images", "20")
    [asked] = [size for size in plan["sizes"] if size["n"] == 2000]
    assert plan["seconds"] == pytest.approx(asked["seconds"] + plan["training"]["seconds"])
    assert plan["cost"] == pytest.approx(asked["cost"] + plan["training"]["cost"])
    assert plan["cost"] == pytest.approx(plan["seconds"] / 3600 * 3)
    recipe = named_recipe("demo")
    steps = recipe.epochs * ((10_000 - recipe.held_out) // recipe.batch)
    assert plan["training"]["steps"] == steps
    assert plan["training"]["seconds"] == pytest.approx(steps / 4)
    assert plan["training"]["samples_per_second"] == 4 * recipe.batch * recipe.k


def test_a_recipe_stands_for_its_network_noise_and_images(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--train", "demo", "--device", "cpu", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    recipe = named_recipe("demo")
    assert (plan["target"], plan["sigma"]) == (recipe.model, recipe.sigma)
    assert plan["shape"] == [1, 28, 28]


def test_a_recipe_with_a_denoiser_is_planned_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = 'model = "lenet"\ndataset = "mnist-sample"\ndenoiser = "dncnn-small"\n'
    (tmp_path / "a.toml").write_text(f'{recipe}[loss]\nname = "denoising"\n')
    planned = []
    made = Pace(1000.0, 10.0, threads=1, task=5, rows=100, padded=False)
    monkeypatch.setattr(
        pace, "measured_pace", lambda target, **_: planned.append(target.model[1]) or made
    )
    assert main(["plan", "--train", str(tmp_path / "a.toml"), "--device", "cpu"]) == 0
    assert [type(network) for network in planned] == [Denoised]


def test_a_plan_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed(capsys, "--train", "demo")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_of_the_threads_that_are_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    printed(capsys, "--threads", "3")
    assert asked == [3]


# known value


def test_a_known_plan(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--radius", "0.5", "--price", "2.5", "--n", "2000")
    told = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    assert told == [
        "lenet, 1×28×28 images, 1 thread: 1,000 samples/s, ready after 10 s",
        "σ 0.5, α 0.001, n0 100, clopper-pearson",
        "n largest radius per image 500 images cost",
        "─" * len(told[3]),
        "1,000 1.2316 1.1 s 9 min 20 s 0.39",
        "2,000 1.3509 2.1 s 17 min 40 s 0.74",
        "10,000 1.5992 10 s 1 h 24 min 3.51",
        "100,000 1.9057 1 min 40 s 13 h 54 min 34.76",
        "Samples by `certify --radius R` for an image whose true radius is …",
        "R p_A above least n 0.5 R 1.1 R 1.5 R 2 R",
        "─" * len(told[10]),
        told[11],
        told[12],
        "--score saves 2.0 s for each image whose selected class is wrong.",
    ]
    assert told[11].startswith("0.5 0.8413 40 ")
    assert told[12].startswith("R = 0.5: 500 images robust to 1.5 R take ")


def test_one_step_and_one_image_are_not_several(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "one.toml"
    recipe.write_text('model = "lenet"\ndataset = "mnist-sample"\nbatch = 10000\nepochs = 1\n')
    text = printed(capsys, "--train", str(recipe), "--images", "1", "--radius", "0.5")
    assert " 1 step at " in text and "R = 0.5: 1 image robust to " in text
    assert "  1 image  " in text


def test_a_radius_that_only_all_samples_at_once_reach_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "--radius", "0.5", "--n", "42")
    assert "R = 0.5: --radius needs n of at least 44.\n" in text
