"""Data of one's own by the commands: a messy folder of photographs, and a function."""

import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from messy_folder import damage, make_messy, photograph
from PIL import Image

import macer
from macer.certification import pace
from macer.certification.budget import Pace
from macer.cli.app import main
from macer.data.photograph import read_photograph
from macer.data.sets import Rules, load
from macer.experiments import floored
from macer.runs.model_file import parse_model
from macer.training import speed

CPU = ["--device", "cpu"]
TRAIN = ["train", "demo-gaussian", "--model", "own_code:net", "--epochs", "8", "--batch", "4"]
TRAIN += ["--k", "4", "--lr", "0.1", *CPU]
FOLDER = [*TRAIN, "--dataset", "folder", "--data", "photos"]
FEW = ["--n0", "20", "--n", "100", *CPU]
PHOTOS = ["--data", "photos"]
CODE = """
import numpy as np
import torch
from torch import nn

def net(num_classes, channels):
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, num_classes))

def photographs(split):
    random = np.random.default_rng(split == "train")
    labels = np.arange(24) % 3
    images = random.integers(0, 60, (24, 3, 10, 12), np.uint8)
    images[np.arange(24), labels] += 150
    return images, labels

def named(split):
    return *photographs(split), ["red", "green", "blue"]

def tests_alone(split):
    assert split == "test"
    images, labels = photographs(split)
    return images[labels < 2], labels[labels < 2]
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MACER_HOME", str(tmp_path / "home"))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    Path("own_code.py").write_text(CODE)
    make_messy(Path("photos"))
    return tmp_path


def card_of(run):
    return parse_model(Path(run, "model.safetensors").read_bytes(), Path(run))[0]


def rows_of(file):
    return [line.split("\t") for line in Path(file).read_text().splitlines()]


# law


@pytest.mark.medium
def test_photographs_of_any_size_are_trained_certified_verified_and_predicted(desk, capsys):
    damage(Path("photos"))
    skip = ["--skip-damaged"]
    assert main([*FOLDER, "--out", "run", "--size", "16x12", *skip]) == 0
    told = capsys.readouterr().err
    assert "train: 12 images in 3 classes: 12 PNG; the middle of each resized to 12×16" in told
    assert "train: classes without images: emu" in told
    assert (card_of("run").dataset, card_of("run").shape) == ("folder@16x12", (3, 16, 12))
    # The run knows the size.
    assert main(["certify", "run", *PHOTOS, *skip, *FEW]) == 0
    told = capsys.readouterr().err
    assert "left out 3 damaged files: " in told and "skipped 5 other files: " in told
    assert '"dataset":"folder@16x12"' in Path("run/certificates.journal").read_text().split("\n")[0]
    assert main(["verify", "run", *PHOTOS, *skip, *CPU]) == 0
    assert "test: 18 images in 3 classes: " in capsys.readouterr().err
    assert main(["verify", "run", *PHOTOS, *skip, *CPU, "--size", "16x12"]) == 0
    capsys.readouterr()
    assert main(["verify", "run", *PHOTOS, *skip, *CPU, "--size", "16"]) == 1
    assert "the data set is folder@16, the journal names folder@16x12" in capsys.readouterr().err
    assert (
        main(["attack", "run", *PHOTOS, *skip, "--images", "2", "--m", "2", "--n", "50", *CPU]) == 0
    )
    assert "(test/" in capsys.readouterr().out  # the image with the lowest margin
    photograph("cat", 900, (123, 77)).save("new.webp")
    assert main(["predict", "run", "new.webp", "--n", "200", *CPU]) == 0
    assert capsys.readouterr().out.split("\t")[:2] == ["new.webp", "cat"]


@pytest.mark.medium
def test_the_files_of_image_numbers_and_those_left_out_lie_beside_the_certificates(desk, capsys):
    damage(Path("photos"))
    assert main([*FOLDER, "--out", "run", "--size", "12", "--skip-damaged"]) == 0
    assert main(["certify", "run", *PHOTOS, "--skip-damaged", "--stop", "5", *FEW]) == 0
    split = load("folder@12", "train", "photos", rules=Rules(skip_damaged=True))
    head, *rows = rows_of("run/files-train.tsv")
    assert head == ["idx", "class", "file"]
    assert rows == [
        [str(i), split.classes[label], file]
        for i, (label, file) in enumerate(zip(split.labels, split.files, strict=True))
    ]
    assert not Path("run/skipped-train.tsv").exists()
    certified = {row[0]: row for row in rows_of("run/certificates.tsv")[1:]}
    for idx, name, file in rows_of("run/files-test.tsv")[1:]:
        assert Path("photos", file).is_file() and file.split("/")[1] == name
        if idx in certified:
            assert split.classes[int(certified[idx][1])] == name
    left_out = dict(rows_of("run/skipped-test.tsv")[1:])
    assert left_out["test/cat/Thumbs.db"] == "no image by its name" and len(left_out) == 8
    assert "must be a whole PNG" in left_out["test/cat/cut.jpg"]
    assert rows_of("run/twice-test.tsv") == [
        ["file", "same as"],
        ["test/cat/again.png", "test/cat/000.png"],
        ["test/dog/relabelled.png", "test/cat/001.png"],
    ]
    told = capsys.readouterr().err.splitlines()
    assert "all of them: run/skipped-test.tsv, run/twice-test.tsv" in told
    assert not Path("run/twice-train.tsv").exists()


def test_certificates_of_two_preparations_do_not_mix(desk, capsys):
    own = ["certify", "own_code:net", "--sigma", "0.5", "--dataset", "folder", *PHOTOS, *FEW]
    own += ["--stop", "4", "--out"]
    assert main([*own, "one", "--size", "12"]) == 0
    capsys.readouterr()
    assert main([*own, "one", "--size", "12x13"]) == 2
    assert capsys.readouterr().err == (
        "macer: dataset must be folder@12 to continue one/certificates.journal, got folder@12x13; "
        "choose another --out or move the journal away\n"
    )
    assert main([*own, "two", "--size", "12x13"]) == 0
    assert main(["merge", "one", "two", "--out", "both"]) == 2


def test_predict_prepares_a_photograph_as_the_data_set_did(desk, capsys):
    assert main([*FOLDER, "--out", "run", "--size", "12"]) == 0
    file = Path("photos/test/cat/phone.jpg")
    pixels = read_photograph(file, channels=3, size=(12, 12)).pixels
    Image.fromarray(pixels.transpose(1, 2, 0)).save("prepared.png")
    capsys.readouterr()
    assert main(["predict", "run", str(file), "prepared.png", "--n", "200", *CPU]) == 0
    one, other = (line.split("\t")[1:] for line in capsys.readouterr().out.splitlines())
    assert one == other


@pytest.mark.medium
def test_duplicates_stop_train_and_certify_until_they_are_allowed(desk, capsys):
    shutil.copy("photos/train/dog/003.png", "photos/test/dog/copied.png")
    train = [*FOLDER, "--size", "12", "--out", "run"]
    assert main(train) == 2 and not Path("run").exists()
    assert main([*train, "--allow-duplicates"]) == 0
    hint = capsys.readouterr().out.splitlines()[-1]
    assert hint == "certify it with: macer certify run --data photos --allow-duplicates"
    certify = ["certify", "run", *PHOTOS, "--stop", "3", *FEW]
    assert main(certify) == 2
    assert "training and test both" in capsys.readouterr().err
    assert main([*certify, "--allow-duplicates"]) == 0
    assert "1 image found in training and test both: " in capsys.readouterr().err
    assert main(["verify", "run", *PHOTOS, *CPU]) == 0


@pytest.mark.medium
def test_held_out_photographs_are_certified_and_verified(desk):
    assert main([*FOLDER, "--size", "12", "--out", "run", "--held-out", "3"]) == 0
    assert main(["certify", "run", *PHOTOS, "--held-out", *FEW]) == 0
    assert Path("run/held-out/files-train.tsv").is_file()
    assert main(["verify", "run/held-out", *PHOTOS, *CPU]) == 0


@pytest.mark.medium
def test_a_function_s_data_are_trained_certified_and_verified(desk, capsys):
    assert main([*TRAIN, "--dataset", "own_code:named", "--out", "run"]) == 0
    assert card_of("run").classes == ("red", "green", "blue")
    assert card_of("run").dataset == "own_code:named"
    # It is her own run, so that nothing has to be admitted.
    assert main(["certify", "run", *FEW]) == 0
    assert main(["verify", "run", *CPU]) == 0
    assert main(["verify", "run", *CPU, "--dataset", "own_code:named"]) == 0
    assert main(["attack", "run", "--images", "1", "--m", "2", "--n", "50", *CPU]) == 0
    capsys.readouterr()
    assert main(["verify", "run", *CPU, "--dataset", "own_code:photographs"]) == 1
    assert "the data set is own_code:photographs, the journal names" in capsys.readouterr().err


@pytest.mark.medium
def test_a_stranger_admits_a_function_s_data_by_flag_or_by_name(desk, monkeypatch, capsys):
    lenet = ["train", "demo-gaussian", "--model", "resnet20", "--epochs", "1", "--batch", "4"]
    lenet += ["--k", "1", *CPU]
    assert main([*lenet, "--dataset", "own_code:photographs", "--out", "run"]) == 0
    monkeypatch.setenv("MACER_HOME", str(desk / "elsewhere"))
    certify, verify = ["certify", "run", "--stop", "2", *FEW], ["verify", "run", *CPU]
    capsys.readouterr()
    assert main(certify) == 2
    refusal = "run names code of its own, own_code:photographs; if you trust the module own_code"
    assert refusal in capsys.readouterr().err
    assert main([*certify, "--code", "own_code"]) == 0
    assert main([*certify, "--dataset", "own_code:photographs"]) == 0
    capsys.readouterr()
    assert main(verify) == 2
    assert refusal in capsys.readouterr().err
    assert main([*verify, "--code", "own_code"]) == 0
    assert main([*verify, "--dataset", "own_code:photographs"]) == 0


@pytest.mark.medium
def test_test_images_that_lack_a_class_have_the_models_classes(desk):
    assert main([*TRAIN, "--dataset", "own_code:photographs", "--out", "run"]) == 0
    assert main(["certify", "run", "--dataset", "own_code:tests_alone", *FEW, "--out", "two"]) == 0


@pytest.mark.medium
def test_compare_takes_a_folder_at_a_size_and_a_function(desk, capsys):
    text = 'model = "own_code:net"\nepochs = 1\nk = 1\nbatch = 4\ndataset = "{}"\n'
    for name in ("one", "two"):
        Path(f"{name}.toml").write_text(text.format("mnist"))
    compare = ["compare", "one.toml", "two.toml", "--seeds", "1", "--n", "50", "--skip", "5", *CPU]
    compare += ["--code", "own_code", "--out"]
    assert main([*compare, "a", "--dataset", "own_code:named"]) == 0
    assert main([*compare, "b", "--dataset", "folder", "--size", "12", *PHOTOS]) == 0
    assert Path("b/one/seed-0/files-test.tsv").is_file()


def test_a_network_is_packed_at_a_size(desk):
    pack = ["pack", "own_code:net", "--sigma", "0.5", "--dataset", "folder", *PHOTOS]
    assert main([*pack, "--size", "12", "--out", "packed"]) == 0
    assert card_of("packed").dataset == "folder@12"
    assert main(["certify", "packed", *PHOTOS, "--stop", "2", *FEW]) == 0


@pytest.mark.medium
def test_a_page_shows_photographs_by_their_files_though_some_are_damaged_or_found_twice(desk):
    damage(Path("photos"))
    shutil.copy("photos/train/dog/003.png", "photos/test/dog/copied.png")
    lenient = ["--skip-damaged", "--allow-duplicates"]
    assert main([*FOLDER, "--out", "run", "--size", "12", *lenient]) == 0
    assert main(["certify", "run", *PHOTOS, *lenient, *FEW]) == 0
    assert main(["report", "run", "--html", "page.html", *PHOTOS]) == 0
    page = Path("page.html").read_text("utf-8")
    assert "Image 0 (test/cat/000.png), class 0 (cat): " in page and page.count("<img ") == 8


@pytest.mark.medium
def test_a_page_imports_no_data_set_of_a_stranger(desk, monkeypatch, capsys):
    assert main([*TRAIN, "--dataset", "own_code:named", "--out", "run"]) == 0
    assert main(["certify", "run", "--stop", "4", *FEW]) == 0
    report = ["report", "run", "--html", "page.html", "--data", "photos"]
    assert main(report) == 0  # it is her own run
    monkeypatch.setenv("MACER_HOME", str(desk / "elsewhere"))
    Path("page.html").unlink()
    monkeypatch.delitem(sys.modules, "own_code")
    capsys.readouterr()
    assert main(report) == 2
    refusal = "macer: run/certificates.journal names code of its own, own_code:named; if you trust"
    assert capsys.readouterr().err.startswith(refusal)
    assert "own_code" not in sys.modules and not Path("page.html").exists()
    assert main([*report, "--code", "own_code"]) == 0


def test_what_it_takes_is_told_for_photographs_and_for_a_function(desk, monkeypatch, capsys):
    made = Pace(1000.0, 10.0, threads=1, task=5, rows=100, padded=False)
    monkeypatch.setattr(pace, "measured_pace", lambda *_, **__: made)
    monkeypatch.setattr(speed, "steps_per_second", lambda _: 4.0)
    damage(Path("photos"))
    Path("mine.toml").write_text('model = "own_code:net"\nbatch = 4\nk = 1\nepochs = 2\n')
    train = ["plan", "--train", "mine.toml", "--code", "own_code"]
    plan = ["plan", "own_code:net", "--sigma", "0.5"]
    by_folder, by_function = ["--dataset", "folder", *PHOTOS], ["--dataset", "own_code:named"]
    photographs = len(
        load(
            "folder@12", "test", "photos", rules=Rules(skip_damaged=True, duplicates="ignore")
        ).images
    )
    for command, shape, images in (
        ([*plan, *by_folder, "--size", "12x16"], [3, 12, 16], photographs),
        ([*plan, "--dataset", "folder@12", *PHOTOS], [3, 12, 12], photographs),
        ([*plan, *by_function], [3, 10, 12], 24),
        ([*plan, *by_function, "--images", "7"], [3, 10, 12], 7),
        ([*train, *by_folder, "--size", "16"], [3, 16, 16], photographs),
        ([*train, *by_function], [3, 10, 12], 24),
    ):
        capsys.readouterr()
        assert main([*command, *CPU, "--json"]) == 0, command
        told = json.loads(capsys.readouterr().out)
        assert (told["shape"], told["images"]) == (shape, images)
        assert (told["training"] is not None) == (command[1] == "--train")


# in Python


def test_train_records_the_test_images_and_refuses_others(desk):
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (8, 1, 8, 8), np.uint8), np.arange(8) % 2
    recipe = macer.TrainRecipe(model="lenet", epochs=1, batch=4, k=1)
    wide = random.integers(0, 256, (8, 1, 28, 28), np.uint8)
    macer.train(recipe, (wide, labels), folder="a", test=(wide[:4], labels[:4]))
    assert len(json.loads(Path("a/manifest.json").read_text())["test_sha256"]) == 64
    macer.train(recipe, (wide, labels), folder="b")
    assert "test_sha256" not in json.loads(Path("b/manifest.json").read_text())
    with pytest.raises(macer.Mistake, match="test images must be 1×28×28, as those of training"):
        macer.train(recipe, (wide, labels), folder="c", test=(images, labels))
    with pytest.raises(macer.Mistake, match="labels must be below 2, the number of classes, got 2"):
        macer.train(recipe, (wide, labels), folder="c", test=(wide, labels + 1))
    assert not Path("c").exists()


@pytest.mark.medium
def test_a_floor_is_chosen_by_the_photographs_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for split, c, i in itertools.product(("train", "test"), range(2), range(8)):
        place = Path("pictures", split, "ab"[c])
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), 150 * c + i + 20 * (split == "test")).save(place / f"{i}.png")
    Path("pictures/train/a/bad.png").write_bytes(b"no image")
    few = ["--data", "pictures", "--skip-damaged", "--device", "cpu"]
    short = ["--dataset", "folder", "--epochs", "1", "--batch", "8", "--lr", "1e-6"]
    assert main(["train", "demo-gaussian", *short, *few, "--out", "run"]) == 0
    floor = ["floor", "run", "--at-least", "1e-9", "--samples", "1", "--images", "1"]
    capsys.readouterr()
    assert main([*floor, "--data", "pictures", "--device", "cpu", "--out", "floored"]) == 2
    assert "add --skip-damaged" in capsys.readouterr().err
    monkeypatch.setattr(
        floored, "least_offsets", lambda logits, *_: torch.zeros(logits.shape[2])
    )  # an untrained network may see no difference
    assert main([*floor, *few, "--out", "floored"]) == 0
    assert Path("floored/model.safetensors").is_file()
