"""How many files a reader opens who follows a piece of work, and in which direction calls run."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from walks import walk

import macer
from macer.certification.data_set import Certification, certify_data_set
from macer.certification.preparation import plan_certification
from macer.certification.target import Target, find_target
from macer.cli.app import main
from macer.data.sets import Split, classes_of, load
from macer.models.build import build_model
from macer.recipes import CertifyRecipe, named_recipe
from macer.runs.run import Run
from macer.runs.zoo import zoo_file
from macer.system.files import sha256_of_file
from macer.training.step import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a model of the zoo."""
    monkeypatch.chdir(tmp_path)
    made = Run(Path("run"))
    made.folder.mkdir()
    shutil.copy(zoo_file("zoo:mnist-0.50"), made.model)
    sha256 = sha256_of_file(made.model)
    manifest = {"recipe": None, "data_sha256": None, "weights_sha256": sha256}
    made.manifest.write_text(json.dumps(manifest))
    return made.folder


def found(folder: Path) -> tuple[Target, Split]:
    split, classes = load("mnist-sample", "test"), classes_of("mnist-sample", None)
    return find_target(str(folder), sigma=None, split=split, classes=classes), split


def planned(folder: Path) -> Certification:
    return plan_certification(*found(folder), "mnist-sample", CertifyRecipe(n=200), device=CPU)


def certify_command(folder: Path) -> Callable[[], object]:
    arguments = ["certify", str(folder), "--dataset", "mnist-sample", "--stop", "1", "--n", "200"]
    return lambda: main([*arguments, "--device", "cpu"])


def find_model_and_data(folder: Path) -> Callable[[], object]:
    return lambda: found(folder)


def plan(folder: Path) -> Callable[[], object]:
    target, split = found(folder)
    recipe = CertifyRecipe(n=200)
    return lambda: plan_certification(target, split, "mnist-sample", recipe, device=CPU)


def certify_one_image(folder: Path) -> Callable[[], object]:
    certification = planned(folder)
    return lambda: certify_data_set(certification, [0], folder)


def certify_in_python(folder: Path) -> Callable[[], object]:
    model, card = macer.load_model(folder)
    image = load("mnist-sample", "test").images[:1]
    return lambda: macer.certify(model, image, sigma=card.sigma, n=200)


def report(folder: Path) -> Callable[[], object]:
    certify_data_set(planned(folder), [0], folder)
    return lambda: main(["report", str(folder)])


def train_one_step(_: Path) -> Callable[[], object]:
    recipe = replace(named_recipe("demo"), batch=8, k=2)
    split = load(recipe.dataset, "train")
    few = Split(split.images[:32], split.labels[:32])
    model = build_model(recipe.model, num_classes=10, shape=few.images.shape[1:])
    steps = Trainer(recipe, model, few, CPU).rest_of_epoch()
    next(steps)
    return lambda: next(steps)


# By how many files each may be followed.
WORKS = {
    "certify": (certify_command, 70),
    "macer.certify": (certify_in_python, 25),
    "find model and data": (find_model_and_data, 25),
    "plan": (plan, 25),
    "certify one image": (certify_one_image, 25),
    "report": (report, 30),
    "train one step": (train_one_step, 12),
}

# Functions that are handed down to be called there: pieces of a file to be written, what the first
# of several processes does for all, and a network's own code while it runs or torch.fx traces it.
HANDED_DOWN = {"<genexpr>", "<lambda>", "forward", "__torch_function__"}


@pytest.mark.medium
@pytest.mark.parametrize("work", WORKS)
def test_a_piece_of_work_is_followed_through_few_files(run: Path, work: str):
    """Certifying an image and a training step are short walks; the whole command is four of them.

    `macer certify RUN` reads a model and a data set, prepares the network, certifies and prints a
    report, and each of these is its own walk of at most 25 files. Together they are more: files,
    settings, the network's code and the journal are common to several, the others are not.
    """
    begin, most = WORKS[work]
    files = sorted({call.file for call in walk(begin(run))})
    assert len(files) <= most, files


@pytest.mark.medium
@pytest.mark.parametrize("work", WORKS)
def test_no_two_packages_call_back_and_forth(run: Path, work: str):
    """If one package calls another, that one does not call it, but for what was handed down."""
    calls = [call for call in walk(WORKS[work][0](run)) if call.name not in HANDED_DOWN]
    pairs = {call.packages for call in calls if call.packages[0] not in (None, call.packages[1])}
    assert not [pair for pair in pairs if pair[::-1] in pairs]
