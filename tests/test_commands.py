"""The commands of README, Start and the guides are run, page by page, on small stand-ins.

Each page has a folder of its own with what its commands name (`stand_ins.py`), and its commands are
run there in their order: those of macer in this process, with the flags of CHEAPER. A command that
is not run stands in NOT_RUN with the reason. What torchrun starts in several is here one process.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import CHROMIUM
from pages import ROOT, blocks
from stand_ins import GUIDE, fill_with_stand_ins, make_small

from macer.cli.app import main

PAGES = [ROOT / "README.md", ROOT / "docs/start.md", *sorted(GUIDE.glob("*.md"))]
SHELL = ("python", "ls", "ssh-keygen", "curl")
PROGRAM = re.compile(rf"(\$|macer|torchrun|pip|make|{'|'.join(SHELL)}) ")

# Flags of every command that matches, in place of its own of that name or beside them.
CHEAPER = {
    r"train ": "--epochs 1 --batch 4 --device cpu",
    r"train (paper/mnist|demo --(out|loss))": "--dataset mnist --init zoo:mnist-0.50 --lr 1e-6",
    r"train (record|paper/imagenet)": "--model tiny_models:tiny --k 2",
    r"train demo-gaussian": "--model tiny_models:tiny",
    r"train denoiser": "--denoiser dncnn-small",
    r"train signs": "--precision fp32",
    r"train sample/macer-hard-noise": "--labelled 64 --k 2",
    r"certify ": "--n0 20 --n 100 --device cpu",
    r"certify (zoo:cifar10|resnet|runs/(tuned|denoised|floor))": "--stop 1",
    r"certify runs/mnist --data DIR --bound anytime": "--out by-anytime",
    r"certify .*--start 0 --stop 5000": "--stop 30",
    r"certify .*--start 5000": "--start 30",
    r"merge part-0 part-1 part-2": "--out runs/merged",
    r"compare ": "--dataset mnist --seeds 1 --n0 20 --n 100 --device cpu",
    r"compare .*--held-out": "--held-out 16",
    r"paper .*--train": "--share 0.005 --n0 20 --n 100 --start 0 --stop 1 --device cpu",
    r"paper table-10 --train": "--only 0.25-k-1",
    r"floor ": "--images 1 --samples 1 --device cpu",
    r"predict ": "--n 300 --device cpu",
    r"predict .*--seconds": "--seconds 0.1",
    r"verify ": "--resample 1 --device cpu",
    r"attack ": "--images 1 --restarts 1 --steps 2 --m 4 --n 100 --device cpu",
    r"bench $": "--images 1 --n 100 --device cpu",
    r"plan ": "--device cpu",
}

NOT_RUN = {
    "pip install .": "installs macer, which the tests have",
    "pip install 'torch-macer[serve]'": "installs what the tests have",
    "make demo": "tests/experiments/test_demo.py runs it",
    "macer data --download mnist": "asks another host; tests/data/test_downloads.py has one here",
    "macer bench --train": "takes a minute; tests/experiments/test_bench_training.py has it",
}

# What does not end with exit code 0.
ENDS = {
    "macer plan runs/a --radius 2": 2,  # the page shows the mistake
    "macer leaderboard runs/mine": 2,  # the stand-in is certified on digits
    # These gates do not pass: the stand-ins have few images.
    "macer gate runs/mine --radius 0.5 --at-least 0.5": 1,
    "macer gate runs/a --radius 0.5 --worst-class 0.30": 1,
    "macer gate runs/new --radius 0.5 --baseline runs/released --not-worse-by 0.01": 1,
    "macer gate runs/signs --radius 0.25 --at-least 0.45": 1,
    "macer gate runs/gpu --radius 0.25 --at-least 0.50": 1,
}
# The page says it in a sentence.
BEFORE = {"ssh-keygen": "macer report runs/parts --evidence evidence.json"}


def commands(page: Path) -> list[str]:
    """Every command of a page in its order, without prompt and comment."""
    texts = blocks(page, "", "sh", "text")
    parts = [part for text in texts for line in text.splitlines()
             for part in re.sub(" +# .*", "", line).split(" ; ")]  # fmt: skip
    return [part.removeprefix("$ ").strip() for part in parts if PROGRAM.match(part.strip() + " ")]


def cheap(command: str) -> list[str]:
    """The arguments of `macer` in a command, with the flags of CHEAPER."""
    text = re.sub(r"^(torchrun .* -- )?macer ", "", command)
    words = shlex.split(text)
    for pattern, flags in CHEAPER.items():
        if re.match(pattern, f"{text} "):
            words = with_flags(words, flags)
    return words


def with_flags(words: list[str], flags: str) -> list[str]:
    """Words of a command with flags in place of its own; each flag has one value."""
    for name, value in zip(*[iter(flags.split())] * 2, strict=True):
        if name in words:
            at = words.index(name)
            words = words[:at] + words[at + 2 :]
        words = [*words, name, value]
    return words


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the commands name."""
    folder = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MACER_DATA", "DIR")
        fill_with_stand_ins()
    return folder


@pytest.fixture
def desk(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which the commands of a page may change."""
    folder = tmp_path / "desk"
    shutil.copytree(filled, folder, symlinks=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MACER_DATA", "DIR")
    monkeypatch.setenv("HOME", str(folder / "home"))  # its key of SSH
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.syspath_prepend(folder)
    for name in ("mydata", "mylosses", "mynets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    make_small(monkeypatch)
    return folder


def run(command: str) -> int:
    """Run a command as a user would, but for CHEAPER; its exit code."""
    if command.split()[0] in SHELL:
        return subprocess.run(["bash", "-c", command], check=False, timeout=60).returncode
    words = cheap(command)
    if words[0] == "serve":
        return serve(words[1:])
    if words[0] in ("train", "pack") and "--resume" not in words and "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)  # the stand-in
    return main(words)


def serve(words: list[str], ask: Callable[[str], None] = lambda _: None) -> int:
    """Start `macer serve`, ask it once it answers, end it as Ctrl-C does; its exit code."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address, ended, failed = f"http://127.0.0.1:{port}", threading.Event(), []

    def ask_and_stop() -> None:
        try:
            while not ended.wait(0.1) and not answers(address):
                pass
            if not ended.is_set():
                ask(address)
        except Exception as error:  # raised again below, in the test's own thread
            failed.append(error)
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    asking = threading.Thread(target=ask_and_stop)
    asking.start()
    code = main(with_flags(["serve", *words], f"--port {port} --device cpu"))
    ended.set()
    asking.join()
    if failed:
        raise failed[0]
    return code


def answers(address: str) -> bool:
    """Whether a service is there."""
    try:
        urllib.request.urlopen(f"{address}/health", timeout=10).close()
    except OSError:
        return False
    return True


def missing(command: str) -> bool:
    """Whether a program that a command needs is not installed."""
    program = command.split()[0]
    return ("--pdf" in command and CHROMIUM is None) or (
        program in SHELL and shutil.which(program) is None
    )


# law


def test_every_line_of_a_block_with_commands_is_one() -> None:
    for page in PAGES:
        for text in blocks(page, "", "sh"):
            lines = [line for line in text.splitlines() if line]
            are = [bool(PROGRAM.match(line)) or line[0] == "#" for line in lines]
            assert all(are) or not any(are) or (are[0] and lines[0][0] == "$"), (page.name, text)


def test_every_command_that_is_named_here_is_on_a_page() -> None:
    there = {command for page in PAGES for command in commands(page)}
    assert len(there) >= 110
    assert {*NOT_RUN, *ENDS} <= there
    for pattern in CHEAPER:
        assert any(re.match(pattern, re.sub(r"^(torchrun .* -- )?macer ", "", c) + " ")
                   for c in there), pattern  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, desk: Path) -> None:
    if page.stem in ("plan", "review"):  # whose recipe is for digits
        shutil.rmtree("photos")
        Path("digits").rename("photos")
    ended, absent = {}, []
    for command in commands(page):
        if command in NOT_RUN or (page.stem == "serve" and command.startswith("curl")):
            continue
        if missing(command):
            absent.append(command)
            continue
        for first, before in BEFORE.items():
            if command.startswith(first):
                assert run(before) == 0
        ended[command] = run(command)
    assert {c: code for c, code in ended.items() if code != ENDS.get(c, 0)} == {}
    if absent:
        pytest.skip(f"not run, since a program is not installed: {absent}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_requests_of_the_guide_are_answered(desk: Path) -> None:
    def ask(address: str) -> None:
        for command in commands(GUIDE / "serve.md"):
            if command.startswith("curl "):
                here = command.replace("http://127.0.0.1:8000", address).replace("curl", "curl -f")
                assert run(re.sub("deadline=[0-9]+", "deadline=0.3", here)) == 0, command

    assert serve(["zoo:mnist-0.50"], ask) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gate-github.yml", "gate-gitlab.yml"])
def test_the_steps_of_a_file_for_ci_run(name: str, desk: Path) -> None:
    """Its gate does not pass: the stand-ins have few images."""
    lines = (GUIDE / name).read_text("utf-8").splitlines()
    steps = [step[1] for line in lines if (step := re.match(r" +- (?:run: )?(macer .*)", line))]
    assert [run(step) for step in steps] == [0, 0, 1]
    assert "<testsuites" in Path("gate.xml").read_text("utf-8")


SRUN = """#!/bin/bash
printf '%s\n' "$*" >> started
"""


@pytest.mark.slow
def test_the_script_for_slurm_runs(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With programs in the place of Slurm's that write down what they would start."""
    script = (GUIDE / "imagenet.slurm").read_text("utf-8").replace("DATA=/data", "DATA=DIR")
    Path("imagenet.slurm").write_text(script, "utf-8")
    for program in ("srun", "scontrol"):
        Path(program).write_text(SRUN)
        Path(program).chmod(0o755)
    monkeypatch.setenv("PATH", str(desk), prepend=os.pathsep)
    for name in ("SLURM_JOB_NODELIST", "SLURM_NNODES", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, "1")
    subprocess.run(["bash", "-eu", "imagenet.slurm"], check=True)
    _, *started = Path("started").read_text("utf-8").splitlines()
    assert [command.split(" -- ")[1].split()[1] for command in started] == ["train", "certify"]
    assert [run(command) for command in started] == [0, 0]
