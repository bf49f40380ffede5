"""A folder as a user of the command has it: a certified run, images, recipes, data sets."""

from dataclasses import replace
from pathlib import Path

import pytest
from examples import DATA
from PIL import Image
from small_mnist import write_mnist

from macer.cli.app import command_line, main
from macer.cli.loss_flags import one_value_per_flag, train_command
from macer.data.sets import load
from macer.recipes import Loss, TrainRecipe

LOGS = [str(DATA / f"macer_sigma{sigma}.tsv.gz") for sigma in ("0.25", "0.5", "1.0")]
TRAIN = ["train", "demo-gaussian", "--dataset", "mnist", "--epochs", "4", "--out", "run"]
TRAIN += ["--device", "cpu"]
CERTIFY = ["--n0", "20", "--n", "100", "--stop", "6", "--device", "cpu"]


OWN_DATA = """
import numpy as np

def digits(split):
    random = np.random.default_rng(split == "train")
    labels = np.arange(40) % 10
    return random.integers(0, 256, (40, 1, 28, 28), np.uint8), labels

def fails(split):
    raise KeyError(split)

def nothing(split):
    return None

def letters(split):
    return digits(split)[0], np.array(list("abcdefghij") * 4)
"""


def fill_desk() -> None:
    """Write a certified run and the files that a user may name by mistake, with MACER_DATA set."""
    write_mnist(Path("small"), train=1280, t10k=200)
    assert main(TRAIN) == 0
    assert main(["certify", "run", *CERTIFY]) == 0
    assert main(["certify", "run", *CERTIFY, "--radius", "0.1", "--out", "at-0.1"]) == 0
    _write_images()
    _write_recipes()
    _write_data()


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


def _write_data() -> None:
    write_mnist(Path("cut"), train=64, t10k=64)
    for file in Path("cut/MNIST/raw").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    for folder, size, classes in (("large", 32, 10), ("few", 28, 3)):
        for place in (
            Path(folder, split, str(c)) for split in ("train", "test") for c in range(classes)
        ):
            place.mkdir(parents=True)
            Image.new("L", (size, size), int(place.parts[1] == "test")).save(place / "black.png")
    for place in ("train/cat/a.png", "test/cat/b.png"):
        Path("messy", place).parent.mkdir(parents=True)
        Image.new("L", (9, 12), 7).save(Path("messy", place))
    Path("messy/train/cat/cut.png").write_text("no image")
    Path("own_data.py").write_text(OWN_DATA)
    Path("own.toml").write_text('dataset = "own_data:digits"')


def refuses(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], line: str
) -> None:
    """One line that begins so, exit code 2, nothing on standard output, no file changed."""
    before = state_of(folder)
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"macer: {line}"), err
    assert err.count("\n") == 1 and err.endswith("\n")
    assert state_of(folder) == before


def from_command_line(*arguments: str) -> TrainRecipe:
    """The recipe that `macer train` would be given."""
    given = one_value_per_flag(arguments)
    commands = command_line(train_command(given))
    _, bound, _ = commands.parse_args(["train", *given], exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    return replace(given["fields"], loss=Loss(given["loss"], **vars(given["settings"])))


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of the last change of each file."""
    files = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in files.items()}


def words(text: str) -> list[str]:
    return text.split(" ")
