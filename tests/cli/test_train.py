"""`macer train`: where a run goes, what it says, and how it continues after a signal."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import TRAIN, refuses

from macer.cli.app import main


def test_a_trained_run_is_ready_to_certify(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copied_run / "model.safetensors").read_bytes()
    assert main([*TRAIN, "--resume"]) == 0
    out, err = capsys.readouterr()
    line = r"trained run in [\d.,]+ s: [\d,]+ samples/s\ncertify it with: macer certify run\n"
    assert re.fullmatch(line, out)
    assert err == "continuing run at step 80, epoch 4\n"
    assert (copied_run / "model.safetensors").read_bytes() == before


@pytest.mark.medium
def test_a_run_is_continued_by_its_folder_alone(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--resume"]) == 0
    by_recipe = capsys.readouterr()
    for folder in ("run", "run/", "./run"):
        assert main(["train", folder, "--resume", "--device", "cpu"]) == 0
        assert capsys.readouterr() == by_recipe
    refuses(
        capsys, Path(), ["train", "run"], "run holds a run already; continue it with --resume\n"
    )
    elsewhere = ["train", "run", "--resume", "--out", "other"]
    refuses(capsys, Path(), elsewhere, "out must be left out to continue the run run, got other\n")
    other = ["train", "run", "--resume", "--k", "2", "--device", "cpu"]
    refuses(capsys, Path(), other, "k must be 1 to resume run, got 2\n")


@pytest.mark.medium
def test_a_run_is_named_after_its_recipe(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.toml").write_text('dataset = "mnist"\nepochs = 1\nk = 1\nbatch = 640')
    assert main(["train", "mine.toml", "--seed", "3", "--device", "cpu"]) == 0
    assert "certify it with: macer certify runs/mine\n" in capsys.readouterr().out
    shutil.copytree(os.environ["MACER_DATA"], "my data")
    where = ["--data", "my data", "--out", "other", "--device", "cpu"]
    assert main(["train", "mine.toml", *where]) == 0
    hint = capsys.readouterr().out.splitlines()[-1]
    assert hint == "certify it with: macer certify other --data 'my data'"
    assert '"batch": 640' in Path("runs/mine/manifest.json").read_text()
    assert '"seed": 3' in Path("runs/mine/manifest.json").read_text()


@pytest.mark.slow
def test_held_out_images_are_looked_at_as_asked_for(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--held-out", "320", "--validate-every", "3", "--validate-samples", "1"]
    assert main([*TRAIN[:-4], "--out", "other", "--device", "cpu", *settings]) == 0
    lines = [json.loads(line) for line in Path("other/metrics.jsonl").read_text().splitlines()]
    radii = {line["epoch"]: line.get("validation_radius") for line in lines}
    assert radii == {1: None, 2: None, 3: 0.0, 4: 0.0}  # one vote: σΦ⁻¹(½)
    hint = "certify it with: macer certify other; the images that it held out, with --held-out"
    assert capsys.readouterr().out.splitlines()[-1] == hint


def _wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def training(desk: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "macer", *TRAIN, "--checkpoint-seconds", "0.05"],
        cwd=tmp_path, env={**os.environ, "MACER_DATA": str(desk / "small")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        _wait_for(process, tmp_path, "run/checkpoints/*.safetensors")
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_training_and_resume_ends_it(
    number: signal.Signals,
    code: int,
    training: subprocess.Popen[str],
    desk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training.send_signal(number)
    out, err = training.communicate(timeout=60)
    assert (training.returncode, out) == (code, "")
    line = r"macer: stopped at step (\d+); the state is saved; continue with --resume"
    found = re.fullmatch(line, err.splitlines()[-1])
    assert found, err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACER_DATA", str(desk / "small"))
    assert main([*TRAIN, "--resume"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"continuing run at step {found[1]}, epoch ")
    assert out.startswith("trained run in ")


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = sorted((copied_run / "checkpoints").iterdir())
    for file in checkpoints:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    arguments = [*TRAIN, "--resume"]
    line = f"every checkpoint is damaged: {checkpoints[-1]}"
    refuses(capsys, copied_run, arguments, line)
