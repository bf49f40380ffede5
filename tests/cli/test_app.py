"""The command as a process: help, exit codes, and what it does not import."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from desk import LOGS, words

from macer import __version__
from macer.cli.app import app, main


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# law


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "train --help",
        "train demo --sigmma 1",
        "recipes",
    ],
)
def test_help_and_a_mistyped_flag_do_not_import_torch(arguments: str) -> None:
    code = (
        "import sys; from macer.cli.app import main; main(sys.argv[1:]); "
        "sys.exit(bool({'torch', 'scipy', 'matplotlib', 'PIL'} & set(sys.modules)))"
    )
    assert run_python("-c", code, *words(arguments)).returncode == 0


@pytest.mark.slow
def test_python_m_macer_is_the_command() -> None:
    right = run_python("-m", "macer", "--version")
    assert (right.returncode, right.stderr) == (0, "")
    assert right.stdout.startswith(f"macer {__version__}")
    wrong = run_python("-m", "macer", "train", "demo", "--sigma", "0")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.splitlines()[-1] == "macer: sigma must be > 0, got 0.0"


@pytest.mark.medium
def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    names = (
        "demo",
        "train",
        "certify",
        "predict",
        "report",
        "merge",
        "compare",
        "pack",
        "ensemble",
        "floor",
        "export",
        "zoo",
        "recipes",
        "data",
        "bench",
    )
    for name in names:
        assert name in list(app)
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"Usage: macer {name}")


@pytest.mark.parametrize("command", ["train", "serve", "floor", "pack", "certify", "plan"])
def test_a_command_that_reads_a_model_says_so_before_it_has_read_it(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("macer.cli.app.first_sign", lambda text: said.append(text) or nullcontext())
    assert main([command, "--no-such-flag"]) == 2
    assert [text.split()[0] in ("reading", "building") for text in said] == [True]


def test_a_bug_keeps_its_traceback_and_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("macer.reporting.log_table.read_log", broken)
    assert main(["report", "run"]) == 70
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Traceback (most recent call last):\n")
    assert "in broken" in err and err.endswith("ZeroDivisionError: a bug\n")


@pytest.mark.medium
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "macer", "recipes"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "macer: cannot write: No space left on device\n"


@pytest.mark.medium
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_encoding_lacks_is_escaped(encoding: str) -> None:
    command = [sys.executable, "-m", "macer", "gate", LOGS[0], "--radius", "0.5", "--at-least", "0"]
    command += ["--alpha", "0.001"]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}, timeout=60
    )
    assert done.returncode == 0
    assert rb"\u03b1 = 0.001" in done.stdout and not done.stderr


@pytest.mark.medium
def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "macer", "report", LOGS[0], "--csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.slow
def test_the_number_of_threads_is_as_asked_for(at_desk: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in ("1", "2"):
            arguments = ["digit.png", "--n", "50", "--device", "cpu", "--threads", threads]
            assert main(["predict", "run", *arguments]) == 0
            assert torch.get_num_threads() == int(threads)
    finally:
        torch.set_num_threads(before)
