"""What the commands of the guides name: data sets, networks, images and runs, all of them small."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples import DATA
from foreign_files import save_as_cohen, trained
from messy_folder import make_messy
from onnx_file import onnx_of
from pages import ROOT, blocks
from PIL import Image, ImageOps
from small_imagenet import make_imagenet
from small_mnist import write_mnist
from torch import nn

from macer import losses
from macer.certification import pace
from macer.cli.app import main
from macer.data import formats
from macer.data.sets import load
from macer.experiments import floored
from macer.losses import load_recipe
from macer.models.networks import MODELS
from macer.recipes import TrainRecipe

GUIDE = ROOT / "docs/guide"
CIFAR10_IMAGES = 16  # in each file of the stand-in: a batch of 64 in all
TRAIN = "train paper/mnist-0.50 --init zoo:mnist-0.50 --lr 1e-6 --epochs 1 --batch 16 --held-out 16"
CERTIFY = "certify runs/mnist --n0 20 --n 100"


def fill_with_stand_ins() -> None:
    """Write all of it into the current folder, with MACER_DATA set to DIR."""
    _write_data()
    _write_images()
    _write_weights()
    _write_files_of_the_guides()
    _write_runs()


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Admit the small files of CIFAR-10; shorten what no flag does: comparisons and plans.

    No offsets make a network right on images of noise, so that a floor has none.
    """

    def short(name: str, **arguments: Any) -> TrainRecipe:
        return load_recipe(name, **arguments).changed(
            labelled=0, epochs=1, batch=16, k=2, drop_epoch=0
        )

    patch.setattr(formats, "_CIFAR10_IMAGES", CIFAR10_IMAGES)
    patch.setattr(losses, "load_recipe", short)
    patch.setattr(pace, "steady_rate", lambda *_, **__: 1000.0)
    patch.setattr(floored, "least_offsets", lambda logits, *_: torch.zeros(logits.shape[2]))


def write_photographs(folder: Path, mode: str, *, train: int, test: int) -> None:
    """Photographs of one size: digits of three classes, so many of each, grey (L) or RGB."""
    for split, count in (("train", train), ("test", test)):
        sample = load("mnist-sample", split)
        for label in range(3):
            place = folder / split / "abc"[label]
            place.mkdir(parents=True)
            for i in np.flatnonzero(sample.labels == label)[:count]:
                image = ImageOps.colorize(Image.fromarray(sample.images[i, 0]), "navy", "yellow")
                image.convert(mode).save(place / f"{i:05}.png")


def _write_data() -> None:
    write_mnist(Path("DIR"), train=64, t10k=60)
    folder = Path("DIR/cifar-10-batches-bin")
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = random.integers(256, size=(CIFAR10_IMAGES, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] = np.arange(CIFAR10_IMAGES) % 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    make_imagenet(Path("DIR"))
    write_photographs(Path("DIR"), "RGB", train=40, test=4)
    write_photographs(Path("digits"), "L", train=40, test=60)
    write_photographs(Path("imagenette"), "RGB", train=8, test=2)
    make_messy(Path("photos"))
    for track in range(21):
        for place in ("train/14", "train/13", "test/14", "test/13"):
            Path("gtsrb", place).mkdir(parents=True, exist_ok=True)
            pixels = random.integers(256, size=(32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("gtsrb", place, f"{track:05}_00000.png"))
    shutil.copy(GUIDE / "traffic_signs.py", "traffic_signs.py")


def _write_images() -> None:
    shutil.copytree(ROOT / "docs/pictures", "docs/pictures")
    Path("results").symlink_to(ROOT / "results")
    shutil.copy("docs/pictures/nine.png", "digit.png")
    shutil.copy("docs/pictures/nine.png", "photo.png")
    with Image.open("photos/train/cat/000.png") as photograph:
        photograph.save("any-photograph.jpg")
        for name in ("photograph", "stop", "give-way", "limit-50"):
            photograph.resize((32, 32)).save(f"{name}.png")


def _write_weights() -> None:
    torch.manual_seed(0)
    wide14 = MODELS["wide14"](num_classes=10, channels=3)
    torch.save(wide14.state_dict(), "checkpoint.pth")
    resnet110 = MODELS["resnet110"](num_classes=10, channels=3)
    save_as_cohen(resnet110, trained(resnet110), Path("checkpoint.pth.tar"), arch="cifar_resnet110")
    torch.save(MODELS["resnet20a"](num_classes=10, channels=3).state_dict(), "resnet20.th")
    mobilenet = MODELS["mobilenetv2-same"](num_classes=1000, channels=3)
    torch.save(mobilenet.state_dict(), "mobilenet_v2.pth")
    three = MODELS["mobilenetv2-same"](num_classes=3, channels=3)  # as imagenette has
    torch.save(three.state_dict(), "ten.pth")
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
    torch.save(net.state_dict(), "FILE")
    Path("net.onnx").write_bytes(onnx_of(net, (3, 32, 32)))


MYNETS = """
from torch import nn

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
"""
MYDATA = """
import numpy as np

images, labels = np.random.default_rng(0).integers(256, size=(12, 3, 16, 16)), np.arange(12) % 3
images = images.astype(np.uint8)
"""


def _write_files_of_the_guides() -> None:
    [recipe] = blocks(GUIDE / "review.md", "toml")
    Path("parts.toml").write_text(recipe, "utf-8")
    [recipe] = blocks(GUIDE / "traffic-signs.md", "toml")
    Path("signs.toml").write_text(recipe, "utf-8")
    [recipe] = blocks(GUIDE / "photographs.md", "toml")
    Path("photographs.toml").write_text(recipe, "utf-8")
    [recipe] = blocks(GUIDE / "own-loss.md", "toml")
    Path("margin.toml").write_text(recipe, "utf-8")
    [loss] = blocks(GUIDE / "own-loss.md", "python")
    Path("mylosses.py").write_text(loss, "utf-8")
    Path("mydata.py").write_text(MYDATA + blocks(GUIDE / "own-data.md", "python")[0], "utf-8")
    Path("mynets.py").write_text(MYNETS, "utf-8")
    Path("keys.txt").write_text("KEY" * 8)
    shutil.copy(DATA / "macer_sigma0.5.tsv.gz", "published.tsv.gz")
    if shutil.which("ssh-keygen"):
        Path("home/.ssh").mkdir(parents=True)
        key = Path("home/.ssh/id_ed25519")
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(words, check=True)
        Path("allowed_signers").write_text(f"tester {key.with_suffix('.pub').read_text()}")


def _write_runs() -> None:
    assert main([*TRAIN.split(), "--data", "DIR", "--out", "runs/mnist", "--device", "cpu"]) == 0
    for start, part in ((0, "part-0"), (20, "part-1"), (40, "part-2")):
        few = ["--start", str(start), "--stop", str(start + 20), "--out", part, "--device", "cpu"]
        assert main([*CERTIFY.split(), *few]) == 0
    assert main([*CERTIFY.split(), "--device", "cpu"]) == 0
    for name in ("runs/a", "runs/b", "runs/mine", "runs/new", "runs/released", "RUN"):
        shutil.copytree("runs/mnist", name)
