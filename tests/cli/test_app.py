"""Most commands run in this process by `main`; what matters of a process runs in one."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import DATA, bytes_of
from PIL import Image

from macer import __version__
from macer.cli.app import app, main
from macer.data.sets import DATASETS, load
from macer.recipes import recipe_names
from macer.runs.run import load_model, save_model

LOGS = [str(DATA / f"macer_sigma{sigma}.tsv.gz") for sigma in ("0.25", "0.5", "1.0")]
TRAIN = ["train", "demo-gaussian", "--dataset", "mnist", "--epochs", "4", "--out", "run"]
TRAIN += ["--device", "cpu"]
CERTIFY = ["--n0", "20", "--n", "100", "--stop", "6", "--device", "cpu"]


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certified run and the files that a user may name by mistake."""
    folder = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MACER_DATA", "small")
        _write_mnist("small", train=1280, t10k=200)
        assert main(TRAIN) == 0
        assert main(["certify", "run", *CERTIFY]) == 0
        at = ["--radius", "0.1", "--out", "at-0.1"]
        assert main(["certify", "run", *CERTIFY, *at]) == 0
        _write_images()
        _write_recipes()
        _write_data()
    return folder


def _write_images() -> None:
    digit = Image.fromarray(load("mnist-sample", "test").images[0, 0])
    digit.save("digit.png")
    digit.resize((20, 28)).save("narrow.png")
    Path("text.png").write_text("no image")
    Path("cut.png").write_bytes(Path("digit.png").read_bytes()[:100])


def _write_recipes() -> None:
    for name, text in {
        "k": "k = 4.5",
        "typo": "sigmma = 0.5",
        "old": 'loss = "macer"\nlam = 3.0',
        "setting": '[loss]\nname = "macer"\ngama = 3.0',
        "table": "[train]\nsigma = 0.5",
        "word": "sigma = 'much'",
        "broken": "sigma",
        "out": "out = 'elsewhere'",
    }.items():
        Path(f"{name}.toml").write_text(text)


def _write_mnist(folder: str, **images: int) -> None:
    """The first images of the embedded sample, as files of MNIST."""
    source = DATASETS["mnist-sample"].files(Path(), "train")[1][0].parent
    for split, count in images.items():
        for name, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            content = gzip.decompress((source / f"{split}-{name}-ubyte.gz").read_bytes())
            file = Path(folder, "MNIST/raw", f"{split}-{name}-ubyte")
            file.parent.mkdir(parents=True, exist_ok=True)
            number = count.to_bytes(4, "big")
            file.write_bytes(content[:4] + number + content[8 : header + count * size])


def _write_data() -> None:
    _write_mnist("cut", train=64, t10k=64)
    for file in Path("cut/MNIST/raw").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    for folder, size, classes in (("large", 32, 10), ("few", 28, 3)):
        for place in (
            Path(folder, split, str(c)) for split in ("train", "test") for c in range(classes)
        ):
            place.mkdir(parents=True)
            Image.new("L", (size, size)).save(place / "black.png")


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("MACER_DATA", "small")
    return desk


@pytest.fixture
def copied_run(desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run that a test may change, named `run` in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACER_DATA", str(desk / "small"))
    shutil.copytree(desk / "run", tmp_path / "run")
    return Path("run")


def refuses(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], line: str
) -> None:
    """One line that begins so, exit code 2, nothing on standard output, no file changed."""
    before = bytes_of(folder)
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"macer: {line}"), err
    assert err.count("\n") == 1 and err.endswith("\n")
    assert bytes_of(folder) == before


def words(text: str) -> list[str]:
    return text.split(" ")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# Help and mistakes that do not wait for torch.


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


@pytest.mark.parametrize("arguments", ["--help", "train demo --sigmma 1"])
def test_help_and_a_mistyped_flag_are_quick(arguments: str) -> None:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        run_python("-m", "macer", *words(arguments))
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1.5  # half a second on an idle machine


def test_python_m_macer_is_the_command() -> None:
    right = run_python("-m", "macer", "--version")
    assert (right.returncode, right.stderr) == (0, "")
    assert right.stdout.startswith(f"macer {__version__}")
    wrong = run_python("-m", "macer", "train", "demo", "--sigma", "0")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "macer: sigma must be > 0, got 0.0\n"


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


# Lists.


def test_recipes_are_listed_with_their_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line.split()[0] for line in lines if line.strip()]
    assert [name for name in listed if name in recipe_names()] == recipe_names()
    [line] = [line for line in lines if line.split()[:1] == ["paper/cifar10-0.50-150-epochs"]]
    assert line.split()[1:] == ["macer", "resnet110", "0.5", "16", "4.0", "150"]


@pytest.mark.parametrize("columns", ["60", "80"])
def test_a_terminal_shows_names_whole_too(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    for command, names in (("recipes", recipe_names()), ("data", list(DATASETS))):
        assert main([command]) == 0
        text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= int(columns)
        assert set(names) <= {line.split()[0] for line in text.splitlines() if line.strip()}


def test_data_sets_are_listed_with_place_source_and_licence(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "--data", "large"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(DATASETS) <= set(rows)
    for name, data_set in DATASETS.items():
        assert data_set.source in rows[name] and data_set.licence in rows[name]
    assert rows["cifar10"].split()[1] == "no"
    assert rows["folder"].split()[1] == "large"


# Report.


@pytest.mark.parametrize(
    ("piece", "acrs"),
    [
        ([], ("0.531", "0.691", "0.744")),
        (["--start", "500", "--stop", "1000"], ("0.555", "0.725", "0.793")),
    ],
)
def test_report_gives_the_published_acrs_in_every_form(
    piece: list[str], acrs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ([], ["--markdown"], ["--latex"]):
        assert main(["report", *LOGS, *piece, *form]) == 0
        out = capsys.readouterr().out.replace(r"$\pm$", "±").replace(r"\_", "_")
        for log, acr in zip(("sigma0.25", "sigma0.5", "sigma1.0"), acrs, strict=True):
            assert re.search(rf"macer_{re.escape(log)}\b.* {acr} ± ", out), out
    assert main(["report", *LOGS, *piece, "--csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert tuple(f"{float(row['acr']):.3f}" for row in rows) == acrs


def test_report_writes_pictures_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")):
        page = tmp_path / f"{name}.html"
        arguments = ["--plot", str(tmp_path / name), "--html", str(page)]
        assert main(["report", *LOGS[:2], *arguments]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
        assert "0.691" in page.read_text("utf-8")
        assert capsys.readouterr().out.endswith(f"curves: {tmp_path / name}\npage: {page}\n")


@pytest.mark.parametrize("form", ["--csv", "--latex", "--markdown"])
def test_a_form_stands_alone_on_standard_output(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--html", str(tmp_path / "a.html"), "--plot", str(tmp_path / "a.png")]
    assert main(["report", LOGS[0], form]) == 0
    alone = capsys.readouterr().out
    assert main(["report", LOGS[0], form, *files]) == 0
    out, err = capsys.readouterr()
    assert out == alone
    assert err == f"curves: {tmp_path / 'a.png'}\npage: {tmp_path / 'a.html'}\n"


def test_report_of_a_run_is_what_certify_printed(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", *CERTIFY]) == 0
    certified, note = capsys.readouterr()
    assert note == "6 of 6 images are certified already\n"
    assert main(["report", "run"]) == 0
    assert capsys.readouterr() == (certified, "")


# Training that stops and goes on.


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


# A mistake in every argument of every command.

WHOLE = "must be a whole number, got"
NO_MODULE = "Invalid value for --code: must be the name of a module, such as mynets, got my-nets\n"
MISTAKES = [
    ("certfy run", 'Unknown command "certfy". Did you mean "certify"?'),
    ("--sigma 1", 'Unknown command "--sigma". Available commands: demo, train, certify, '),
    # train
    ("train", 'Command "train" parameter --recipe requires an argument.'),
    ("train demmo", "unknown recipe 'demmo', did you mean 'demo'?; `macer recipes` lists them, "),
    ("train .", "unknown recipe '.'; `macer recipes` lists them, or name a TOML file\n"),
    ("train demo paper/mnist-0.25", "Unused Tokens: ['paper/mnist-0.25']."),
    ("train broken.toml", "recipe broken.toml must be a TOML file: "),
    ("train digit.png", "digit.png must be text in UTF-8: "),
    ("train k.toml", "recipe k.toml: k must be a whole number, got 4.5\n"),
    ("train word.toml", "recipe word.toml: sigma must be a number, got 'much'\n"),
    ("train typo.toml", "recipe typo.toml has an unknown field 'sigmma', did you mean 'sigma'?"),
    ("train table.toml", "recipe table.toml has an unknown field 'train'"),
    ("train out.toml", "recipe out.toml has an unknown field 'out'"),
    ("train demo --sigmma 1", "unknown flag --sigmma, did you mean 'sigma'?; the loss macer has "),
    (
        "train demo --dataset cifar",
        "unknown data set 'cifar'; choose from cifar10, fashion-mnist, folder, imagenet, mnist, "
        "mnist-sample, svhn\n",
    ),
    ("train demo --model lenett", "unknown model 'lenett', did you mean 'lenet'?; choose from "),
    ("train demo --code my-nets", NO_MODULE),
    ("train demo --model nowhere:net", "cannot import module 'nowhere': No module named "),
    ("train demo --loss hinge", "unknown loss 'hinge'; choose from macer"),
    ("train demo --normalise yes", "Unused Tokens: ['yes']."),
    ("train demo --sigma 0", "sigma must be > 0, got 0.0\n"),
    ("train demo --sigma -0.25", "sigma must be > 0, got -0.25\n"),
    ("train demo --sigma nan", "sigma must be > 0, got nan\n"),
    ("train demo --sigma inf", "sigma must be > 0, got inf\n"),
    ("train demo --sigma much", 'Invalid value for --sigma: unable to convert "much" into float.'),
    ("train demo --k 0", "k must be at least 1, got 0\n"),
    ("train demo --k 4.5", f"Invalid value for --k: {WHOLE} 4.5\n"),
    ("train demo --lam -1", "lam must be at least 0, got -1.0\n"),
    ("train demo --lam-schedule later", 'Invalid value "later" for --lam-schedule. Choose from: '),
    (
        "train demo --lr-schedule cosine --lam-schedule deferred",
        "lam_schedule must not be deferred without a step ",
    ),
    ("train demo --lam-ramp 0", "lam_ramp must be in (0, 1], got 0.0\n"),
    ("train demo --gamma 0", "gamma must be > 0, got 0.0\n"),
    ("train demo --beta -1", "beta must be > 0, got -1.0\n"),
    ("train demo --loss consistency --eta -1", "eta must be at least 0, got -1.0\n"),
    (
        "train sample/macer-consistency --consistency -1",
        "consistency must be at least 0, got -1.0\n",
    ),
    (
        "train sample/smoothadv --attack fgsm",
        'Invalid value "fgsm" for --attack. Choose from: "pgd", "ddn".',
    ),
    ("train demo --eta 3", "unknown flag --eta, did you mean 'beta'?; the loss macer has the "),
    ("train demo --loss gaussian --lam 0", "unknown flag --lam; the loss gaussian has no settings"),
    ("train demo --loss gausian", "unknown loss 'gausian', did you mean 'gaussian'?; choose from"),
    ("train old.toml", "recipe old.toml must have its loss and the loss's settings in a table at "),
    ("train setting.toml", "recipe setting.toml: the loss macer has no setting 'gama', did you "),
    ("compare setting.toml --out new", "recipe setting.toml: the loss macer has no setting 'gama'"),
    ("train demo --loss smoothadv --epsilon -1", "epsilon must be at least 0, got -1.0\n"),
    ("train demo --loss smoothadv --epsilon-ramp -1", "epsilon_ramp must be at least 0, got -1\n"),
    ("train demo --loss sun --steps -1", "steps must be at least 0, got -1\n"),
    ("train demo --loss sun --step-size -1", "step_size must be at least 0, got -1.0\n"),
    ("train demo --drop-epoch -1", "drop_epoch must be at least 0, got -1\n"),
    (
        "train sun/mnist-0.50 --epochs 70",
        "drop_epoch must be below epochs, which are 70, or 0 for ",
    ),
    ("train demo --drop-below 2", "drop_below must be in [0, 1], got 2.0\n"),
    ("train demo --reweight-every 0", "reweight_every must be at least 1, got 0\n"),
    (
        "train demo --loss catrs --teacher runn",
        "no run or model at runn; name a run folder or a model file\n",
    ),
    ("train demo --loss catrs --teacher zoo:none", "unknown zoo model 'none'"),
    ("train demo --labelled 10000", "labelled must be at least batch, 64, and fewer than the "),
    ("train demo --pseudo runn", "labelled must be > 0 with pseudo, got 0\n"),
    ("train demo --pseudo-weight -1", "pseudo_weight must be at least 0, got -1.0\n"),
    ("train demo --epochs 0", "epochs must be at least 1, got 0\n"),
    ("train demo --batch 0", "batch must be at least 1, got 0\n"),
    ("train demo --batch 10001", "held_out and batch must not exceed the 10000 training images "),
    ("train demo --lr 0", "lr must be > 0, got 0.0\n"),
    ("train demo --filter-lr 0", "filter_lr must be > 0, got 0.0\n"),
    ("train demo --optimizer adam", 'Invalid value "adam" for --optimizer. Choose from: '),
    ("train demo --lr-schedule flat", 'Invalid value "flat" for --lr-schedule. Choose from: '),
    ("train demo --lr-decays 4 --lr-decays 3", "lr_decays must be ascending, got [4, 3]\n"),
    ("train demo --lr-decays 4.5", 'Invalid value for --lr-decays: unable to convert "4.5"'),
    ("train demo --lr-peak 2", "lr_peak must be in [0, 1], got 2.0\n"),
    ("train demo --momentum 1", "momentum must be in [0, 1), got 1.0\n"),
    ("train demo --momentum 0 --nesterov", "momentum must be > 0 with nesterov, got 0.0\n"),
    ("train demo --weight-decay -1", "weight_decay must be at least 0, got -1.0\n"),
    ("train demo --clip -1", "clip must be at least 0, got -1.0\n"),
    ("train demo --ema 1", "ema must be in [0, 1), got 1.0\n"),
    ("train demo --resized-crop 2", "resized_crop must be in [0, 1], got 2.0\n"),
    (
        "train demo --resized-crop 0.5 --epochs 1",
        "resized_crop must be 0 with mnist-sample, got 0.5; use crop\n",
    ),
    ("train demo --lr 1e308", "lr must be at most 1e+30, got 1e+308\n"),
    ("train demo --k 1000000000000", "k must be at most 1,000,000, got 1000000000000\n"),
    ("train demo --epochs 1000000000", "epochs must be at most 1,000,000, got 1000000000\n"),
    ("train demo --loss sun --steps 100000", "steps must be at most 10,000, got 100000\n"),
    (
        "train demo --batch 1000000 --k 3000",
        "batch · k must be at most 2,147,483,648, got 3000000000\n",
    ),
    ("train demo --lr-decays -1", "lr_decays must be at least 0, got [-1]\n"),
    ("train demo --crop -1", "crop must be at least 0, got -1\n"),
    ("train demo --crop 29 --epochs 1", "crop must be at most the images' size, 28, got 29\n"),
    (
        "train demo --cross-entropy mean",
        'Invalid value "mean" for --cross-entropy. Choose from: "smoothed", "copies".',
    ),
    ("train demo --flip yes", "Unused Tokens: ['yes']."),
    ("train demo --held-out -1", "held_out must be at least 0, got -1\n"),
    ("train demo --held-out 10000", "held_out and batch must not exceed the 10000 training "),
    ("train demo --precision fp16", 'Invalid value "fp16" for --precision. Choose from: "auto",'),
    ("train demo --seed -1", "seed must be in [0, 2⁶³), got -1\n"),
    ("train demo --out run", "run holds a run already; continue it with --resume or choose "),
    ("train demo --out large", "large must be a new folder or a run; choose another --out\n"),
    (
        "train demo --out digit.png",
        "digit.png must be a new folder or a run; choose another --out\n",
    ),
    ("train demo --out run --resume", "dataset must be mnist to resume run, got mnist-sample\n"),
    ("train demo --resume yes", "Unused Tokens: ['yes']."),
    ("train demo --tensorboard yes", "Unused Tokens: ['yes']."),
    ("train demo --device gpu", "device must be auto, cpu or cuda, got gpu\n"),
    ("train demo --device cuda", "device must be cpu or auto here, got cuda; torch sees no GPU\n"),
    ("train demo --checkpoint-seconds -1", "checkpoint_seconds must be at least 0, got -1.0\n"),
    ("train demo --validate-every 0", "validate_every must be at least 1, got 0\n"),
    ("train demo --validate-samples 0", "validate_samples must be from 1 to 1024, got 0\n"),
    ("train demo --validate-samples 1025", "validate_samples must be from 1 to 1024, got 1025\n"),
    ("train demo --checkpoint-seconds nan", "checkpoint_seconds must be at least 0, got nan\n"),
    (
        "train demo --dataset mnist --data nowhere",
        "no files of 'mnist' in nowhere: expected nowhere/MNIST/raw/train-images-idx3-ubyte; run "
        "`macer data --download mnist --data nowhere`, or set MACER_DATA to the folder",
    ),
    ("train demo --dataset mnist --data cut", "cut/MNIST/raw/train-images-idx3-ubyte must "),
    ("train demo --dataset folder --data nowhere", "no files of 'folder' in nowhere: expected "),
    # certify
    ("certify run --code my-nets", NO_MODULE),
    ("certify", 'Command "certify" parameter --target requires an argument.'),
    (
        "certify runn",
        "no run or model at runn; name a run folder, a model file or package.module:function\n",
    ),
    ("certify runn --dataset mnist-sample --out new", "no run or model at runn; "),
    ("certify large", "no model in large: expected large/model.safetensors\n"),
    ("certify run/model.safetensors", "out must be given to certify run/model.safetensors; add "),
    ("certify run/manifest.json --out new", "run/manifest.json must be a model file written by "),
    ("certify nowhere:net", "out must be given to certify nowhere:net; add --out FOLDER\n"),
    ("certify nowhere:net --out new", "dataset must be given to certify nowhere:net; add "),
    (
        "certify nowhere:net --out new --dataset mnist-sample",
        "sigma must be given to certify nowhere:net; add --sigma\n",
    ),
    (
        "certify nowhere:net --out new --dataset mnist-sample --sigma 1",
        "cannot import module 'nowhere': ",
    ),
    (
        "certify torch.nn:Flatten --out new --dataset mnist-sample --sigma 1",
        "model 'torch.nn:Flatten' must return logits of shape (2, 10) for 2 images, got (2, 784)",
    ),
    ("certify lenet", "weights must be given to certify lenet; add --weights FILE\n"),
    ("certify lenet --weights digit.png", "out must be given to certify lenet; add --out FOLDER\n"),
    (
        "certify lenet --weights digit.png --out new",
        "dataset must be given to certify lenet; add --dataset NAME\n",
    ),
    (
        "certify lenet --weights digit.png --out new --dataset mnist-sample",
        "sigma must be given to certify lenet; add --sigma\n",
    ),
    (
        "certify lenet --weights digit.png --out new --dataset mnist-sample --sigma 1",
        "digit.png must be a file of torch.save or of ",
    ),
    (
        "certify lenet --weights large --out new --dataset mnist-sample --sigma 1",
        "no weights at large: expected a file of torch.save or of safetensors\n",
    ),
    (
        "certify lenett --weights digit.png --out new --dataset mnist-sample --sigma 1",
        "unknown model 'lenett', did you mean 'lenet'?; choose from lenet, ",
    ),
    (
        "certify resnet20 --weights run/model.safetensors --out new --dataset mnist-sample "
        "--sigma 1",
        "run/model.safetensors must hold the weights of resnet20: it lacks bn1.weight, ",
    ),
    (
        "certify lenet --weights run/model.safetensors --normalise none --out new --sigma 1 "
        "--dataset mnist-sample",
        "normalise must be left out, since run/model.safetensors holds its own, got none\n",
    ),
    (
        "certify run --weights digit.png",
        "weights must be left out for run, which has its own, got digit.png\n",
    ),
    (
        "certify run --normalise none",
        "normalise must be left out for run, which has its own, got none\n",
    ),
    ("certify run --n0 0", "n0 must be at least 1, got 0\n"),
    ("certify run --n0 1.5", f"Invalid value for --n0: {WHOLE} 1.5\n"),
    (
        "certify run --n 9",
        "n must be at least 10 to certify anything at alpha 0.001 with the clopper-pearson "
        "bound, got 9\n",
    ),
    ("certify run --n 1e5", f"Invalid value for --n: {WHOLE} 1e5\n"),
    (
        "certify run --n 8388608 --bound bernstein",
        "n must be at most 8388607 with the bernstein bound, got 8388608\n",
    ),
    ("certify run --n 13 --bound hoeffding", "n must be at least 14 to certify anything at "),
    ("certify run --alpha 0", "alpha must be between 0 and 1, got 0.0\n"),
    ("certify run --alpha 1", "alpha must be between 0 and 1, got 1.0\n"),
    ("certify run --alpha nan", "alpha must be between 0 and 1, got nan\n"),
    ("certify run --bound exact", 'Invalid value "exact" for --bound. Choose from: '),
    ("certify run --beta 0", "beta must be > 0, got 0.0\n"),
    ("certify run --radius -1", "radius must be a number ≥ 0, got -1.0\n"),
    ("certify run --radius 9", "radius must be below "),
    ("certify run --radius 0.1 --bound hoeffding", "bound must be clopper-pearson with a radius, "),
    ("certify run --soft-betas 1 1 --out new", "soft_betas must differ, got [1.0, 1.0]\n"),
    ("certify run --soft-betas 0 --out new", "beta must be > 0, got 0.0\n"),
    (
        "certify run --radius 0.1 --soft-betas 2 --out new",
        "soft_betas must be left out with a radius, got [2.0]\n",
    ),
    ("certify run --precision half", 'Invalid value "half" for --precision. Choose from: '),
    ("certify run --seed -1", "seed must be in [0, 2⁶³), got -1\n"),
    ("certify run --sigma 0.25", "sigma must be 0.5, which run was trained with, got 0.25\n"),
    ("certify run --sigma much", 'Invalid value for --sigma: unable to convert "much"'),
    ("certify run --dataset cifar", "unknown data set 'cifar'; choose from "),
    ("certify run --dataset mnist --data nowhere", "no files of 'mnist' in nowhere: expected "),
    ("certify run --dataset mnist --data cut", "cut/MNIST/raw/t10k-images-idx3-ubyte must "),
    (
        "certify run --dataset folder --data large",
        "run takes 1×28×28 images, those of folder are 1×32×32\n",
    ),
    (
        "certify run --dataset folder --data few",
        "run knows 10 classes, the data set has 3; choose another --dataset\n",
    ),
    ("certify run --start -1", "start must be at least 0, got -1\n"),
    ("certify run --start 200", "no image i has 200 ≤ i < 200 and i % 1 = 0\n"),
    ("certify run --stop 201", "stop must be at most the number of images, 200, got 201\n"),
    ("certify run --stop 0", "no image i has 0 ≤ i < 0 and i % 1 = 0\n"),
    ("certify run --skip 0", "skip must be at least 1, got 0\n"),
    ("certify run --start 1 --stop 5 --skip 5", "no image i has 1 ≤ i < 5 and i % 5 = 0\n"),
    (
        "certify run --held-out --out new",
        "held_out needs a run that held images out, got run; train it with --held-out N\n",
    ),
    ("certify run --batch-size 0", "batch_size must be at least 1, got 0\n"),
    ("certify run --device cuda", "device must be cpu or auto here, got cuda; torch sees no GPU\n"),
    ("certify run --out digit.png", "cannot use digit.png: File exists\n"),
    (
        "certify run --n0 20 --n 200",
        "n must be 100 to continue run/certificates.journal, got 200; choose another --out or "
        "move the journal away\n",
    ),
    (
        "certify run --n0 20 --n 100 --seed 1",
        "seed must be 0 to continue run/certificates.journal, got 1; choose another --out or ",
    ),
    ("certify zoo:none", "unknown zoo model 'none'"),
    ("certify zoo:none --weights digit.png", "unknown zoo model 'none'"),
    # predict
    ("predict", 'Command "predict" parameter RUN requires an argument.'),
    ("predict run", "images must name at least one file, got none\n"),
    ("certify run --exact yes", "Unused Tokens: ['yes']."),
    ("certify run --row-by-row yes", "Unused Tokens: ['yes']."),
    (
        "certify run --row-by-row",
        "row_by_row must be False to continue run/certificates.journal, got True; choose another ",
    ),
    ("certify run --score yes", "Unused Tokens: ['yes']."),
    ("certify run --family yes", "Unused Tokens: ['yes']."),
    ("merge --out new", "parts must name at least one folder with certificates, got none\n"),
    ("merge runn --out new", "no certificates in runn: expected runn/certificates.journal\n"),
    ("merge run --out digit.png", "cannot use digit.png: File exists\n"),
    ("verify runn", "no certificates in runn: expected runn/certificates.journal\n"),
    ("verify run --target nots:none", "cannot import module 'nots': No module named 'nots'; "),
    ("verify zoo:none", "unknown zoo model 'none'"),
    ("verify run --target zoo:none", "unknown zoo model 'none'"),
    ("verify run --weights digit.png", "target must be given with weights; add --target NAME\n"),
    ("verify run --normalise none", "target must be given with normalise; add --target NAME\n"),
    (
        "verify run --target lenet --weights digit.png",
        "digit.png must be a file of torch.save or of ",
    ),
    ("verify run --resample -1", "resample must be at least 0, got -1\n"),
    ("verify run --resample 1.5", "Invalid value for --resample: must be a whole number, got 1.5"),
    ("verify run --partial yes", "Unused Tokens: ['yes']."),
    ("verify run --start 1.5", "Invalid value for --start: must be a whole number, got 1.5"),
    ("verify run --stop x", "Invalid value for --stop: must be a whole number, got x"),
    ("verify run --skip 1.5", "Invalid value for --skip: must be a whole number, got 1.5"),
    ("verify run --data nowhere", "no files of 'mnist' in nowhere: expected "),
    ("verify run --code my-nets", NO_MODULE),
    ("verify run --device tpu", "device must be auto, cpu or cuda, got tpu\n"),
    ("attack runn", "no certificates in runn: expected runn/certificates.journal\n"),
    ("attack zoo:none", "unknown zoo model 'none'"),
    ("attack run --target nots:none", "cannot import module 'nots': No module named 'nots'; "),
    ("attack run --weights w.pt", "target must be given with weights; add --target NAME\n"),
    ("attack run --normalise none", "target must be given with normalise; add --target NAME\n"),
    ("attack run --images 0", "images must be at least 1, got 0\n"),
    ("attack run --scale 0", "scale must be > 0, got 0.0\n"),
    ("attack run --scale inf", "scale must be > 0, got inf\n"),
    ("attack run --restarts 0", "restarts must be at least 1, got 0\n"),
    ("attack run --steps 0", "steps must be at least 1, got 0\n"),
    ("attack run --steps 1.5", f"Invalid value for --steps: {WHOLE} 1.5\n"),
    ("attack run --m 0", "m must be at least 1, got 0\n"),
    ("attack run --n 20", "n must be at least 21 to confirm anything at level 1e-06, got 20\n"),
    ("attack run --seed -1", "seed must be in [0, 2⁶³), got -1\n"),
    ("attack run --data nowhere", "no files of 'mnist' in nowhere: expected "),
    ("attack run --code my-nets", NO_MODULE),
    ("attack run --device tpu", "device must be auto, cpu or cuda, got tpu\n"),
    ("predict runn digit.png", "no run or model at runn; name a run folder or a model file\n"),
    ("predict zoo:none digit.png", "unknown zoo model 'none'"),
    ("predict run digitt.png", "no image at digitt.png: expected a PNG or JPEG file\n"),
    ("predict run large", "no image at large: expected a PNG or JPEG file\n"),
    ("predict run text.png", "text.png must be a PNG or JPEG image: cannot identify image file"),
    ("predict run cut.png", "cut.png must be a whole PNG or JPEG image: "),
    (
        "predict run narrow.png",
        "narrow.png must be a 1×28×28 image for this model, got 1×28×20; resize it\n",
    ),
    ("predict run digit.png narrow.png", "narrow.png must be a 1×28×28 image for this model, "),
    ("predict run digit.png --n 9", "n must be at least 10 to certify anything at alpha 0.001 "),
    ("predict run digit.png --n 4.5", f"Invalid value for --n: {WHOLE} 4.5\n"),
    ("predict run digit.png --n0 0", "n0 must be at least 1, got 0\n"),
    ("predict run digit.png --alpha 1", "alpha must be between 0 and 1, got 1.0\n"),
    (
        "predict run digit.png --precision bf16",
        "precision must be fp32, that of the certificates in run, got bf16; add --precision fp32\n",
    ),
    (
        "predict run digit.png --row-by-row",
        "row_by_row must be False, as for the certificates in run, got True; add --no-row-by-row\n",
    ),
    ("predict run digit.png --radius 9", "radius must be below 1.5854, the most that "),
    ("predict run digit.png --radius -1", "radius must be "),
    ("predict run digit.png --seed -1", "seed must be in [0, 2⁶³), got -1\n"),
    ("predict run digit.png --code my-nets", NO_MODULE),
    ("predict run digit.png --device tpu", "device must be auto, cpu or cuda, got tpu\n"),
    # report
    ("report", "logs must name at least one run or log file, got none\n"),
    ("report runn", "no log at runn: expected a run folder or a log file\n"),
    ("report zoo:none", "unknown zoo model 'none'"),
    ("report large", "no certificates in large: expected large/certificates.tsv; certify the run "),
    ("report k.toml", "k.toml: the header must have the tab-separated columns idx label predict "),
    ("report digit.png", "digit.png must be tab-separated text, plain or gzipped: "),
    ("report run --csv --latex", "choose one of --csv, --latex and --markdown\n"),
    ("report run --latex --markdown", "choose one of --csv, --latex and --markdown\n"),
    ("report run --start -1", "start must be at least 0, got -1\n"),
    ("report run --start 6", "no image of run is left by start 6, stop None, skip 1: the log has "),
    (
        "report run --stop 0",
        "no image of run is left by start 0, stop 0, skip 1: the log has 0…5\n",
    ),
    ("report run --stop x", f"Invalid value for --stop: {WHOLE} x\n"),
    ("report run --skip 0", "skip must be at least 1, got 0\n"),
    ("report run --radii -1", "radii must be finite and ≥ 0, got -1\n"),
    ("report run --radii 1 1.0", "radii must differ in six digits, got 1.00, 1.00\n"),
    ("report run --plot a.jpg", "path of a plot must end in .png or .pdf, got 'a.jpg'\n"),
    ("report run --plot nowhere/a.png", "no folder nowhere to write a.png into: make it first\n"),
    ("report run --html nowhere/a.html", "no folder nowhere to write a.html into: make it first\n"),
    (
        "report run --html run/certificates.tsv",
        "path of a page must end in .html, got 'run/certificates.tsv'\n",
    ),
    ("report at-0.1", "at-0.1/certificates.tsv must hold certificates of largest radii, got "),
    ("verify at-0.1", "target must be given where no model lies beside the certificates, in "),
    # history
    ("history", "runs must name at least one run folder, got none\n"),
    ("history nowhere", "no run in nowhere: expected nowhere/manifest.json\n"),
    (
        "history run --csv ",
        "run must have looked at held-out images, got none in run/metrics.jsonl; ",
    ),
    ("history run --plot nowhere/a.png", "no folder nowhere to write a.png into: make it first"),
    ("history run --plot a.jpg", "path of a plot must end in .png or .pdf, got 'a.jpg'\n"),
    # compare
    ("compare demo", 'Command "compare" parameter --out requires an argument.'),
    ("compare demmo --out new", "unknown recipe 'demmo', did you mean 'demo'?; `macer recipes` "),
    ("compare typo.toml --out new", "recipe typo.toml has an unknown field 'sigmma', did you "),
    ("compare demo word.toml --out new", "recipe word.toml: sigma must be a number, got 'much'\n"),
    (
        "compare demo paper/mnist-0.25 --out new",
        "recipes must be of one data set, got mnist, mnist-sample\n",
    ),
    ("compare demo demo --out new", "recipes must have different names, got demo, demo\n"),
    ("compare demo --out digit.png", "out must be a folder, got the file digit.png\n"),
    ("compare paper/mnist-0.25 --out new --data nowhere", "no files of 'mnist' in nowhere: "),
    ("compare demo --out new --seeds 0", "seeds must be at least 1, got 0\n"),
    ("compare demo --out new --seeds 1.5", f"Invalid value for --seeds: {WHOLE} 1.5\n"),
    ("compare demo --out new --n0 0", "n0 must be at least 1, got 0\n"),
    ("compare demo --out new --n 9", "n must be at least 10 to certify anything at alpha 0.001 "),
    ("compare demo --out new --alpha 1", "alpha must be between 0 and 1, got 1.0\n"),
    ("compare demo --out new --score yes", "unknown recipe 'yes'; `macer recipes` lists them, "),
    ("compare demo --out new --start -1", "start must be at least 0, got -1\n"),
    ("compare demo --out new --stop 2001", "stop must be at most the number of images, "),
    ("compare demo --out new --skip 0", "skip must be at least 1, got 0\n"),
    ("compare demo --out new --held-out -1", "held_out must be at least 0, got -1\n"),
    (
        "compare demo --out new --held-out 9990",
        "held_out and batch must not exceed the 10000 training images together, got 9990 and ",
    ),
    ("compare demo --out new --code my-nets", NO_MODULE),
    ("compare demo --out new --device tpu", "device must be auto, cpu or cuda, got tpu\n"),
    # paper
    ("paper --train", "item must be named with these flags, got none; `macer paper` lists them\n"),
    ("paper table-0", "unknown table or figure 'table-0', did you mean 'table-"),
    ("paper table-1 --train yes", "Unused Tokens: ['yes']."),
    ("paper table-1 --commands yes", "Unused Tokens: ['yes']."),
    ("paper table-1 --only svhn", "only must be a part of the name of one of table-1's runs, got "),
    ("paper table-1 --share 0", "share must be in (0, 1], got 0\n"),
    ("paper table-1 --share some", 'Invalid value for --share: unable to convert "some" into'),
    ("paper table-1 --start -1", "start must be at least 0, got -1\n"),
    ("paper table-1 --stop x", f"Invalid value for --stop: {WHOLE} x\n"),
    ("paper table-1 --skip 0", "skip must be at least 1, got 0\n"),
    ("paper table-1 --latex --markdown", "choose one of --latex and --markdown\n"),
    ("paper table-1 --plot a.png", "plot must be left out with table-1, which is a table, got "),
    ("paper figure-1 --plot a.jpg", "path of a plot must end in .png or .pdf, got 'a.jpg'\n"),
    ("paper figure-1 --plot nowhere/a.png", "no folder nowhere to write a.png into: make it first"),
    (
        "paper figure-4 --plot a.png",
        "figure-4 must have soft certificates to draw, got none; add --train, or ",
    ),
    ("paper table-6 --train --n 0 --runs new", "n must be at least 1, got 0\n"),
    ("paper table-6 --train --n0 0 --runs new", "n0 must be at least 1, got 0\n"),
    ("paper table-6 --train --alpha 1 --runs new", "alpha must be between 0 and 1, got 1"),
    ("paper table-6 --train --device gpu", "device must be auto, cpu or cuda, got gpu\n"),
    ("paper table-6 --train --data nowhere", "no files of 'mnist' in nowhere: expected nowhere/"),
    ("paper table-6 --train", "stop must be at most the number of images, 200, got 1000\n"),
    # export
    ("export --out new", 'Command "export" parameter RUN requires an argument.'),
    ("export run", 'Command "export" parameter --out requires an argument.'),
    ("export runn --out new", "no run or model at runn; name a run folder or a model file\n"),
    ("export zoo:none --out new", "unknown zoo model 'none'"),
    (
        "export digit.png --out new.safetensors",
        "digit.png must be a model file written by macer train: ",
    ),
    ("export run --out zoo:new", "out must be a file to write, got the zoo model zoo:new\n"),
    (
        "export run --out digit.png --overwrite",
        "out must end in .safetensors, got digit.png\n",
    ),
    (
        "export run --out nowhere/a.safetensors",
        "no folder nowhere to write a.safetensors into: make it first\n",
    ),
    (
        "export run --out run/model.safetensors --overwrite",
        "out must not be the model to be exported, got run/model.safetensors; choose another ",
    ),
    ("export run --out new --code my-nets", NO_MODULE),
    ("export run --out new --overwrite yes", "Unused Tokens: ['yes']."),
    # pack
    ("pack --sigma 1 --dataset mnist --out new", 'Command "pack" parameter NETWORK requires an '),
    ("pack os:x --dataset mnist --out new", 'Command "pack" parameter --sigma requires an '),
    ("pack os:x --sigma 1 --out new", 'Command "pack" parameter --dataset requires an '),
    ("pack os:x --sigma 1 --dataset mnist", 'Command "pack" parameter --out requires an '),
    ("pack lenet --sigma 1 --dataset mnist --out new", "weights must be given to certify lenet; "),
    ("pack lenett --sigma 1 --dataset mnist --out new", "no run or model at lenett; name a run "),
    ("pack run --sigma 1 --dataset mnist --out new", "network must be one by its name, got run, "),
    ("pack os:x --sigma 1 --dataset mnistt --out new", "unknown data set 'mnistt'; choose from "),
    ("pack os:x --sigma 1 --dataset mnist --data nowhere --out new", "no files of 'mnist' in "),
    (
        "pack lenet --weights none.pt --sigma 1 --dataset mnist --out new",
        "no weights at none.pt: expected a file of torch.save or of safetensors\n",
    ),
    (
        "pack torch.nn:Flatten --normalise some --sigma 1 --dataset mnist --out new",
        "model 'torch.nn:Flatten' must return logits of shape (2, 10) for 2 images, ",
    ),
    # demo, recipes, zoo, data, bench
    ("demo --out run", "run exists already; choose another --out or remove it\n"),
    ("demo --device cuda", "device must be cpu or auto here, got cuda; torch sees no GPU\n"),
    ("demo here", "Unused Tokens: ['here']."),
    ("zoo none", "Unused Tokens: ['none']."),
    ("recipes demo", "Unused Tokens: ['demo']."),
    ("data mnist", "Unused Tokens: ['mnist']."),
    ("data --data", 'Command "data" parameter --data requires an argument.'),
    ("data --download cifar", "no download for data set 'cifar'; choose from cifar10, "),
    ("data --download mnist-sample", "no download for data set 'mnist-sample'; choose from "),
    ("bench --images 0", "images must be in 1…2000, got 0\n"),
    ("bench --n 9", "n must be at least 10 to certify anything at alpha 0.001 "),
    ("bench --train --n 100", "images and n must be left out with train, which certifies nothing"),
    ("bench --train yes", "Unused Tokens: ['yes']."),
    ("bench --device tpu", "device must be auto, cpu or cuda, got tpu\n"),
    ("bench --images 1.5", f"Invalid value for --images: {WHOLE} 1.5\n"),
]


@pytest.mark.parametrize(("arguments", "line"), MISTAKES, ids=[a for a, _ in MISTAKES])
def test_a_mistake_is_one_line_and_changes_nothing(
    arguments: str,
    line: str,
    at_desk: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuses(capsys, at_desk, words(arguments), line)
    assert not (at_desk / "new").exists() and not (at_desk / "runs").exists()


def test_every_argument_of_every_command_is_mistaken_once() -> None:
    """--data by its folder, arguments without a flag by their values, a yes-or-no by a yes."""
    told = {name: " ".join(a for a, _ in MISTAKES if a.startswith(name)) for name in list(app)}
    for name, text in told.items():
        if name.startswith("-"):
            continue
        parameters = app[name].assemble_argument_collection()
        flags = {str(argument.name) for argument in parameters if argument.show}
        flags -= {"--fields", "--settings", "--recipe", "--target"}
        flags -= {"RUN", "RUNS", "ITEM", "IMAGES", "LOGS", "RECIPES", "PARTS", "NETWORK"}
        assert flags or name in ("recipes", "zoo")
        unmistaken = {flag for flag in flags if f"{flag} " not in f"{text} "}
        assert not unmistaken, (name, unmistaken)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_damaged_model_is_refused(
    place: int, copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = copied_run / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[place] ^= 1
    model.write_bytes(content)
    line = "run/model.safetensors must have the SHA-256 its manifest names, "
    for arguments in (["certify", "run", *CERTIFY], ["predict", "run", "digit.png"]):
        refuses(capsys, copied_run, arguments, line)


def test_a_model_cut_short_is_refused_without_its_manifest_too(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (0, 5, 2000, -1):
        Path("cut.safetensors").write_bytes((copied_run / "model.safetensors").read_bytes()[:size])
        arguments = ["certify", "cut.safetensors", "--out", "new", *CERTIFY]
        line = "cut.safetensors must be a model file written by macer train: "
        refuses(capsys, Path(), arguments, line)


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


def test_a_malformed_log_is_refused_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(Path(LOGS[0]).read_bytes()).decode().splitlines()
    lines[7] = lines[7].replace("\t", " ")
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(lines))
    line = f"{file}, line 8: a row must have 6 tab-separated values, got "
    refuses(capsys, tmp_path, ["report", LOGS[1], str(file)], line)


def test_images_outside_0_to_1_are_refused() -> None:
    import macer

    model = torch.nn.Flatten()
    for value, found in ((1.5, "[1.5, 1.5]"), (-0.1, "[-0.1, -0.1]"), (np.nan, "[nan, nan]")):
        images = torch.full((1, 1, 2, 2), value)
        with pytest.raises(macer.Mistake, match=re.escape(f"values in [0, 1], got {found}; scale")):
            macer.certify(model, images, sigma=0.5)


def test_a_bug_keeps_its_traceback_and_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Path) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("macer.report.logs.read_log", broken)
    assert main(["report", "run"]) == 70
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Traceback (most recent call last):\n")
    assert "in broken" in err and err.endswith("ZeroDivisionError: a bug\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "macer", "recipes"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "macer: cannot write: No space left on device\n"


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "macer", "report", LOGS[0], "--csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_classes_of_other_names_are_refused(
    copied_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, card = load_model("run/model.safetensors")
    other = replace(card, classes=("one", *card.classes[1:]))
    save_model(Path("other.safetensors"), model.state_dict(), other)
    line = "class 0 must be one, as other.safetensors was trained, the data set has 0; choose "
    refuses(capsys, Path(), ["certify", "other.safetensors", "--out", "new", *CERTIFY], line)
