"""docs/json.md is the schema: every command's document is checked against its tables."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples import log_of
from PIL import Image
from schema import SIMPLE, matches, parts_of

import macer
from macer.cli.app import app, main
from macer.cli.printing import plain, print_document
from macer.experiments import demo
from macer.models.networks import lenet
from macer.reporting import log_table
from macer.runs import zoo
from macer.server import listening
from macer.system import rates
from macer.system.errors import AuditFailed, Stopped
from macer.system.files import sha256_of_file

PARTS = parts_of("json.md")
COMMANDS = [name for name in app if not name.startswith("-")]
CPU, DATA = ["--device", "cpu"], ["--data", "pictures"]
TRAIN = ["--dataset", "folder", "--data", "pictures", "--epochs", "3", "--batch", "6", *CPU]
TRAIN += ["--held-out", "3"]
CERTIFY = ["--n0", "10", "--n", "50", "--data", "pictures", *CPU]
CALLS: list[tuple[str, ...]] = [
    ("demo", "--out", "demo", *CPU),
    ("plan", "run", "--radius", "0.1", "0.2", "--price", "2.5", *CPU),
    ("plan", "--train", "demo-gaussian", "--n", "42", "--radius", "0.5", "--images", "2", *CPU),
    ("train", "demo-gaussian", "--out", "new", *TRAIN),
    ("certify", "run", *CERTIFY),
    ("certify", "run", *CERTIFY, "--radius", "0.1", "--out", "at"),
    ("verify", "run", "--resample", "1", "--data", "pictures", *CPU),
    ("rescore", "run", "--bound", "runner-up"),
    ("merge", "run", "--out", "merged"),
    ("merge", "at-0.1", "--out", "merged-at"),
    ("attack", "run", "--images", "1", "--m", "2", "--n", "50", "--data", "pictures", *CPU),
    ("predict", "run", "0.png", "1.png", "--n", "50", *CPU),
    ("predict", "run", "0.png", "--n", "50", "--radius", "0.1", *CPU),
    ("predict", "run", "0.png", "--n", "50", "--seconds", "5", *CPU),
    ("serve", "run", "--port", "0", *CPU),
    ("report", "run", "run"),
    ("report", "run", "--csv", "--html", "a.html", "--plot", "a.png"),
    ("report", "run", "--evidence", "a.json", "--html", "a.html", "--data", "pictures"),
    ("verify", "run", "--evidence", "a.json", "--resample", "0", "--data", "pictures", *CPU),
    ("gate", "run", "--radius", "0.1", "--at-least", "0"),
    ("gate", "run", "--radius", "0", "--worst-class", "0", "--junit", "gate.xml"),
    ("gate", "at-0.1", "--radius", "0.1", "--baseline", "run", "--not-worse-by", "1"),
    ("history", "run"),
    ("leaderboard", "--images", "both", "--html", "board.html"),
    ("compare", "one.toml", "two.toml", "--seeds", "1", "--skip", "1", "--out", "c", *CERTIFY),
    ("paper",),
    ("paper", "table-1"),
    ("paper", "table-1", "--commands"),
    (
        "pack",
        "lenet",
        "--weights",
        "lenet.pth",
        "--sigma",
        "0.5",
        "--dataset",
        "folder",
        "--data",
        "pictures",
        "--out",
        "packed",
    ),
    ("ensemble", "run", "package/tiny.safetensors", "--out", "both"),
    ("floor", "run", "--at-least", "0.1", "--held-out", *DATA, *CPU, "--out", "floored"),
    ("export", "run", "--out", "exported.safetensors"),
    ("zoo",),
    ("recipes",),
    ("recipes", "catrs/mnist-0.25"),
    ("data", "--data", "pictures"),
    ("bench", "--images", "1", "--n", "50", *CPU),
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certified run of three classes that are easily told apart."""
    folder = tmp_path_factory.mktemp("json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for split, images in (("train", range(13)), ("test", range(13, 15))):
            for c in range(3):
                place = Path("pictures", split, str(c))
                place.mkdir(parents=True)
                for i in images:
                    Image.new("L", (28, 28), 100 * c + i).save(place / f"{i}.png")
        for c in range(2):
            Image.new("L", (28, 28), 100 * c).save(f"{c}.png")
        for name in ("one", "two"):
            text = 'dataset = "folder"\nepochs = 1\nk = 1\nbatch = 6'
            Path(f"{name}.toml").write_text(text)
        assert main(["train", "demo-gaussian", "--out", "run", *TRAIN, "--lr", "0.05"]) == 0
        assert main(["certify", "run", *CERTIFY]) == 0
        assert main(["certify", "run", *CERTIFY, "--radius", "0.1", "--out", "at-0.1"]) == 0
        torch.save(lenet(num_classes=3, channels=1).state_dict(), "lenet.pth")
        Path("package").mkdir()
        assert main(["export", "run", "--out", "package/tiny.safetensors"]) == 0
        digest = sha256_of_file(Path("package/tiny.safetensors"))
        Path("package/SHA256SUMS").write_text(f"{digest}  tiny.safetensors\n")
        assert main(["certify", "package/tiny.safetensors", *CERTIFY, "--out", "package/tiny"]) == 0
    return folder


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setattr(zoo, "FOLDER", desk / "package")
    monkeypatch.setattr(rates, "ROUNDS", 1)
    monkeypatch.setattr(rates, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(rates, "SHORT", 0.0)
    logs = (log_of([0, 0], [0.5, 0.25], name="a"), log_of([0, 1], [1.0, 0.5], name="b"))
    made = demo.Made(logs, Path("curves.png"), Path("report.html"))
    monkeypatch.setattr(demo, "run_demo", lambda *_: made)
    monkeypatch.setattr(listening, "listen", lambda *_: None)


def document_of(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], code: int) -> Any:
    """The one document that a call prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    out = capsys.readouterr().out
    assert out.isascii() and out.count("\n") == 1 and out.endswith("}\n"), out

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(out, parse_constant=refuse)
    head = {key: document.pop(key) for key in PARTS["document"]}
    matches(PARTS, head, "document", "document")
    assert (head["schema"], head["macer"]) == (1, macer.__version__)
    assert head["command"] in (arguments[0], None)
    return document


# law


def test_the_page_has_every_command_and_tries_it() -> None:
    assert set(COMMANDS) <= PARTS.keys()
    assert {call[0] for call in CALLS} == set(COMMANDS)
    known = {*SIMPLE, *PARTS}
    for part, keys in PARTS.items():
        assert keys, part
        for kind in keys.values():
            assert kind.removesuffix(" or null").removeprefix("list of ") in known, (part, kind)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", CALLS, ids=[" ".join(call[:2]) for call in CALLS])
def test_every_command_prints_the_document_that_the_page_describes(
    arguments: tuple[str, ...], at_desk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    matches(PARTS, document_of(arguments, capsys, 0), arguments[0], arguments[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_names_the_flag(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ([command, "--help"], [command, "--help", "--json"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: macer {command}") and "\n--json: " in out


@pytest.mark.medium
def test_figures_are_those_of_the_text(at_desk: None, capsys: pytest.CaptureFixture[str]) -> None:
    call = ("predict", "run", "0.png", "1.png", "--n", "50", *CPU)
    assert main(list(call)) == 0
    lines = capsys.readouterr().out.splitlines()
    predictions = document_of(call, capsys, 0)["predictions"]
    assert any(not one["abstained"] for one in predictions)
    for line, one in zip(lines, predictions, strict=True):
        fields = line.split("\t")
        told = (
            ["abstains"] if one["abstained"] else [one["class_name"], f"radius {one['radius']:.4f}"]
        )
        assert fields == [one["file"], *told]
        assert (one["n0"], one["n"], one["alpha"], one["seed"]) == (100, 50, 0.001, 0)
        assert (one["exact"], one["precision"], one["sigma"]) == (True, "fp32", 0.5)


def test_names_are_exact_and_the_unknown_is_null(
    at_desk: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    odd = tmp_path / "a\n\t\x1b[31m\u202eé\udcff.tsv"
    odd.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t0\t0.5\t1\t0.0\n")
    document = document_of(("report", str(odd), "--html", "b.html"), capsys, 0)
    [row] = document["report"]["rows"]
    assert row["name"] == odd.stem
    assert (row["standard_error"], row["n"], row["acr"]) == (None, None, 0.5)
    assert document["html"] == "b.html"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("report", "nowhere"), "no log at nowhere: expected a run folder or a log file"),
        (("certfy",), 'Unknown command "certfy". Did you mean "certify"?'),
        (("predict", "run", "--n", "4.5"), "Invalid value for --n: must be a whole number, got"),
    ],
)
def test_a_mistake_is_a_document_a_line_and_code_2(
    arguments: tuple[str, ...], line: str, at_desk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    matches(PARTS, error, "error", "error")
    assert error["kind"] == "mistake" and error["message"].startswith(line)
    assert err == f"macer: {error['message']}\n"


@pytest.mark.parametrize(
    ("error", "kind", "code", "line"),
    [
        (AuditFailed("image 3"), "not verified", 1, "macer: not verified: image 3\n"),
        (Stopped(15, "stopped"), "stopped", 143, "macer: stopped; begin again\n"),
        (Stopped(2, "stopped", {"a": 1}), "stopped", 130, "macer: stopped; begin again\n"),
        (KeyboardInterrupt(), "stopped", 130, "macer: interrupted\n"),
        (ZeroDivisionError("a"), "bug", 70, "Traceback (most recent call last)"),
        (OSError(5, "unnamed"), "bug", 70, "Traceback (most recent call last)"),
        (PermissionError(13, "no", "a\nb"), "mistake", 2, "macer: cannot use a\\nb: no\n"),
    ],
)
def test_every_ending_has_its_code_and_its_document(
    error: BaseException,
    kind: str,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(log_table, "certificates_folder", broken)
    for flags in ([], ["--json"]):
        assert main(["report", "run", *flags]) == code
        out, err = capsys.readouterr()
        assert err.startswith(line)
        assert (json.loads(out)["error"]["kind"] == kind) if flags else out == ""


def test_what_other_code_prints_does_not_come_between(
    at_desk: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy(path: Path) -> Path:
        sys.stdout.write("a line of somebody's module\n")
        return path

    monkeypatch.setattr(log_table, "certificates_folder", noisy)
    assert main(["report", "run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["command"] == "report"
    assert err == "a line of somebody's module\n"


def test_after_two_dashes_the_flag_is_a_file(
    at_desk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--", "--json"]) == 2
    assert capsys.readouterr() == (
        "",
        "macer: no log at --json: expected a run folder or a log file\n",
    )


def test_of_several_processes_the_first_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TORCHELASTIC_RUN_ID", "a"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        print_document("train", {"run": Path("a")})
        assert capsys.readouterr().out.count("\n") == lines


def test_plain_values_have_no_nan_and_no_infinity() -> None:
    odd = {"a": (float("nan"), float("inf"), -0.5), "b": [Path("c/d"), np.float64("nan"), None]}
    assert plain(odd) == {"a": [None, None, -0.5], "b": ["c/d", None, None]}


# known value


@pytest.mark.medium
def test_a_bug_leaves_the_process_with_70() -> None:
    code = (
        "import sys; from macer.cli import app as cli; from macer.reporting import log_table; "
        "log_table.certificates_folder = lambda path: 1 / 0; sys.exit(cli.main(['report', 'run']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
