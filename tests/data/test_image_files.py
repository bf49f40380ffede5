"""Images that stay in their files: what is read, and when."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import refused
from PIL import Image
from small_imagenet import SIZES, WNIDS, make_imagenet, picture, recipe_of
from tiny_models import tiny_recipe

from macer.cli.app import main
from macer.data.fingerprint import fingerprint
from macer.data.image_files import part_of, random_box, read_middle
from macer.data.photograph import opened_image
from macer.data.sets import Split, classes_of, load, located
from macer.models.build import build_model
from macer.runs.model_file import ModelCard
from macer.runs.trained_model import load_model, save_model
from macer.training.loop import train
from macer.training.validation import validate


@pytest.fixture
def imagenet(tmp_path):
    return make_imagenet(tmp_path)


# reference


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_a_test_image_is_the_middle_of_its_file(tmp_path, number):
    file = tmp_path / "a.png"
    picture(number).save(file)
    width, height = SIZES[number]
    longer = int(256 * max(width, height) / min(width, height))
    size = (256, longer) if width <= height else (longer, 256)
    resized = np.asarray(picture(number).resize(size, Image.Resampling.BILINEAR))
    top, left = round((size[1] - 224) / 2.0), round((size[0] - 224) / 2.0)
    expected = resized[top : top + 224, left : left + 224].transpose(2, 0, 1)
    assert np.array_equal(read_middle(file), expected)


def test_a_training_image_is_a_part_of_its_file_resized(imagenet):
    images = load("imagenet", "train", imagenet).images
    for i in range(5):
        with Image.open(images.folder / images.names[i]) as image:
            left, top, right, bottom = random_box(*image.size, 0.08, np.random.default_rng(i))
            part = image.convert("RGB").crop((left, top, right, bottom))
        expected = np.asarray(part.resize((224, 224), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.array_equal(images.part(i, 0.08, np.random.default_rng(i)), expected)


@pytest.mark.parametrize("size", [(1600, 1201), (3001, 900)])
def test_a_large_jpeg_is_certified_as_its_whole_pixels_have_it(tmp_path, size):
    """Training may decode less of it; a certificate is bound to these pixels."""
    file = tmp_path / "large.jpg"
    picture(0).resize(size, Image.Resampling.BICUBIC).save(file, quality=90)
    longer = 256 * max(size) // min(size)
    with Image.open(file) as image:
        resized = np.asarray(image.resize((longer, 256), Image.Resampling.BILINEAR))
    left = round((longer - 224) / 2)
    expected = resized[16:240, left : left + 224].transpose(2, 0, 1)
    assert np.array_equal(read_middle(file), expected)


def test_a_part_of_a_large_jpeg_is_nearly_that_of_its_whole_pixels(tmp_path):
    file = tmp_path / "large.jpg"
    noise = np.random.default_rng(0).integers(256, size=(60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((1601, 1203), Image.Resampling.BICUBIC).save(file, quality=95)
    with Image.open(file) as image:
        whole = image.convert("RGB")
    for box in ((0, 0, 1601, 1203), (3, 5, 903, 805), (701, 303, 1601, 1203)):
        with opened_image(file) as image:
            part = np.asarray(part_of(image, box), int)
            assert image.size != whole.size  # less was decoded
        expected = np.asarray(whole.crop(box).resize((224, 224), Image.Resampling.BILINEAR), int)
        assert np.abs(part - expected).mean() < 4  # of 255; a shift by a pixel gives more
        shifted = np.abs(np.roll(part, 1, axis=1) - expected).mean()
        assert np.abs(part - expected).mean() < shifted / 2
    with opened_image(file) as image:  # 447 pixels would not leave 224
        part = np.asarray(part_of(image, (10, 10, 457, 900)))
    expected = whole.crop((10, 10, 457, 900)).resize((224, 224), Image.Resampling.BILINEAR)
    assert np.array_equal(part, np.asarray(expected))


# law


def test_random_boxes_have_areas_and_ratios_as_asked():
    random, width, height = np.random.default_rng(0), 500, 400
    boxes = np.array([random_box(width, height, 0.08, random) for _ in range(20_000)])
    left, top, right, bottom = boxes.T
    assert left.min() == top.min() == 0
    assert (right.max(), bottom.max()) == (width, height)
    w, h = right - left, bottom - top
    share, ratio = w * h / (width * height), w / h
    assert share.min() > 0.079
    assert 3 / 4 * 0.99 < ratio.min() < ratio.max() < 4 / 3 * 1.01
    # Small parts always fit: their areas are even, their ratios symmetric, their places anywhere.
    small = share < 0.4
    assert np.quantile(share[small], 0.5) == pytest.approx(0.24, abs=0.01)
    assert np.log(ratio[small]).mean() == pytest.approx(0.0, abs=0.01)
    assert (left[small] / (width - w[small])).mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("size", "box"),
    [((900, 90), (390, 0, 510, 90)), ((90, 900), (0, 390, 90, 510)), ((100, 90), (0, 0, 100, 90))],
)
def test_where_no_part_fits_it_is_the_middle(size, box):
    class Largest(np.random.Generator):
        """Draws the whole area, which no ratio but the image's own has room for."""

        def uniform(self, low, high):
            return high

    assert random_box(*size, 1.0, Largest(np.random.PCG64(0))) == box


def test_nothing_is_read_before_it_is_asked_for(imagenet):
    folder = imagenet / "imagenet/val" / WNIDS[0]
    (folder / f"{WNIDS[0]}_0.JPEG").write_bytes(b"not an image")
    images, labels = load("imagenet", "test", imagenet)
    assert images.shape == (6, 3, 224, 224)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.asarray(images[[1, 5]]).shape == (2, 3, 224, 224)
    with refused(f"{folder / WNIDS[0]}_0.JPEG must be a PNG, JPEG, WebP"):
        np.asarray(images[:1])


def test_indexing_files_is_indexing_their_pixels(imagenet):
    images = load("imagenet", "train", imagenet).images
    pixels = np.asarray(images)
    assert (pixels.shape, pixels.dtype) == ((12, 3, 224, 224), np.uint8)
    assert len({image.tobytes() for image in pixels}) == 12
    assert np.array_equal(np.asarray(images[3:7]), pixels[3:7])
    assert np.array_equal(np.asarray(images[[9, 0]]), pixels[[9, 0]])
    assert images[2:][[1]].names == [images.names[3]]


def test_classes_and_images_are_in_the_order_of_their_names(imagenet):
    assert classes_of("imagenet", imagenet) == WNIDS
    names = load("imagenet", "test", imagenet).images.names
    assert names == sorted(names)
    assert names[0] == f"{WNIDS[0]}/{WNIDS[0]}_0.JPEG"


def test_an_image_keeps_its_label_in_whatever_order_it_is(imagenet):
    for split in ("train", "test"):
        images, labels = load("imagenet", split, imagenet)
        assert [WNIDS[label] for label in labels] == [name.split("/")[0] for name in images.names]
    names = load("imagenet", "train", imagenet).images.names
    assert names != sorted(names)


@pytest.mark.parametrize("place", ["ILSVRC2012", "ILSVRC/Data/CLS-LOC", "."])
def test_imagenet_is_found_where_people_keep_it(imagenet, place):
    new = imagenet / "there" / place
    new.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        (imagenet / "imagenet" / split).rename(new / split)
    assert len(load("imagenet", "train", imagenet / "there").images) == 12
    assert classes_of("imagenet", imagenet / "there") == WNIDS
    assert {at.name for at in located(imagenet / "there") if at.path} >= {"imagenet"}


def test_the_validation_images_alone_can_be_certified(imagenet):
    (imagenet / "imagenet/train").rename(imagenet / "elsewhere")
    assert len(load("imagenet", "test", imagenet).images) == 6
    assert classes_of("imagenet", imagenet) == WNIDS


def test_the_fingerprint_tells_of_another_file_or_label(imagenet):
    split = load("imagenet", "test", imagenet)
    before = fingerprint(split)
    assert fingerprint(load("imagenet", "test", imagenet)) == before
    assert fingerprint(Split(split.images, split.labels[::-1])) != before
    assert fingerprint(Split(split.images[:5], split.labels[:5])) != before
    file = split.images.folder / split.images.names[3]
    file.write_bytes(file.read_bytes() + b"\0")
    assert fingerprint(load("imagenet", "test", imagenet)) != before


def test_held_out_images_are_validated_from_their_files(imagenet):
    images, labels = load("imagenet", "train", imagenet)
    model = build_model("tiny_models:tiny", num_classes=3, shape=images.shape[1:])
    settings = {"samples": 8, "device": torch.device("cpu")}
    found = validate(model, Split(images[8:], labels[8:]), recipe_of(), **settings)
    pixels = np.asarray(images)
    assert found == validate(model, Split(pixels[8:], labels[8:]), recipe_of(), **settings)


# by the commands


NETWORK = """
import torch
from torch import nn

def net(num_classes):
    torch.manual_seed(0)
    last = nn.Linear(48, num_classes)
    last.weight.data *= 30
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), last)
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "photo_nets", raising=False)
    Path("photo_nets.py").write_text(NETWORK)


@pytest.mark.slow
def test_imagenet_is_certified_audited_and_its_images_stay_bound(imagenet, nets, capsys):
    data = ["--data", str(imagenet)]
    settings = ["--dataset", "imagenet", "--sigma", "0.25", "--n0", "20", "--n", "200"]
    certify = ["certify", "photo_nets:net", "--out", "out", *settings, *data]
    assert main([*certify, "--skip", "2"]) == 0
    rows = [line.split("\t") for line in Path("out/certificates.tsv").read_text().splitlines()]
    assert [row[0] for row in rows[1:]] == ["0", "2", "4"]
    assert [row[1] for row in rows[1:]] == ["0", "1", "2"]
    assert any(float(row[3]) > 0 for row in rows[1:])
    assert main(["verify", "out", "--target", "photo_nets:net", "--resample", "3", *data]) == 0
    # Another picture in a file of the same size, which continues but does not verify.
    file = imagenet / "imagenet/val" / WNIDS[1] / f"{WNIDS[1]}_0.JPEG"
    content, size = file.read_bytes(), file.stat().st_size
    Image.new("RGB", (64, 64), "red").save(file)
    assert file.stat().st_size < size
    file.write_bytes(file.read_bytes().ljust(size, b"\0"))
    capsys.readouterr()
    assert main(["verify", "out", "--target", "photo_nets:net", *data]) == 1
    assert "image 2: its pixels are not those that were certified" in capsys.readouterr().err
    # And one of another size.
    file.write_bytes(content + b"\0")
    assert main(certify) == 2
    assert "data_sha256" in capsys.readouterr().err


@pytest.mark.slow
def test_a_photograph_of_any_size_is_predicted_by_its_middle(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = build_model("tiny_models:tiny", num_classes=3, shape=(3, 224, 224))
    model.load_state_dict({name: 20 * t for name, t in model.state_dict().items()}, strict=True)
    card = ModelCard(
        architecture="tiny_models:tiny", classes=WNIDS, shape=(3, 224, 224),
        mean=(0.0,) * 3, std=(1.0,) * 3, sigma=0.25, dataset="imagenet",
    )  # fmt: skip
    save_model(Path("model.safetensors"), model.state_dict(), card)
    picture(3).save("photo.png")
    assert (
        main(["predict", "model.safetensors", "photo.png", "--n", "200", "--code", "tiny_models"])
        == 0
    )
    [line] = capsys.readouterr().out.splitlines()
    trained, _ = load_model(Path("model.safetensors"), code=("tiny_models",))
    pixels = torch.from_numpy(read_middle(Path("photo.png"))[None] / 255).float()
    assert line.split("\t")[1] == WNIDS[int(trained.eval()(pixels).argmax())]
    assert "radius" in line


@pytest.mark.medium
def test_a_model_is_trained_from_files_by_the_command(imagenet, nets):
    few = ["--model", "photo_nets:net", "--batch", "4", "--epochs", "1", "--held-out", "3"]
    arguments = ["paper/imagenet-0.25", *few, "--data", str(imagenet), "--out", "run"]
    assert main(["train", *arguments]) == 0
    assert load_model(Path("run"))[1].shape == (3, 224, 224)


def test_the_last_training_images_are_of_all_classes(tmp_path):
    for wnid in WNIDS:
        (tmp_path / "imagenet/train" / wnid).mkdir(parents=True)
        for i in range(30):
            (tmp_path / "imagenet/train" / wnid / f"{i}.JPEG").touch()
    images, labels = load("imagenet", "train", tmp_path)
    assert {*labels[-15:].tolist()} == {*labels[:15].tolist()} == {0, 1, 2}
    assert [WNIDS.index(name.split("/")[0]) for name in images.names] == labels.tolist()
    assert len({*images.names}) == 90


def test_classes_are_those_of_the_place_that_is_read(imagenet):
    """Another data set of the user's, in the data folder itself, is not taken for a part of it."""
    (imagenet / "imagenet/train").rename(imagenet / "elsewhere")
    (imagenet / "train/cat").mkdir(parents=True)
    picture(0).save(imagenet / "train/cat/a.png")
    assert classes_of("imagenet", imagenet) == WNIDS
    with refused(f"expected {imagenet}/imagenet/train;"):
        load("imagenet", "train", imagenet)


# refusal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"crop": 4}, "crop must be left out with imagenet, got 4"),
        ({"drop_epoch": 1}, "drop_epoch must be left out with imagenet, got 1"),
        ({"pseudo": "run", "labelled": 4}, "pseudo must be left out with imagenet, got run"),
    ],
)
def test_what_needs_images_in_memory_is_refused(imagenet, tmp_path, changes, message):
    split = load("imagenet", "train", imagenet)
    with refused(message):
        train(recipe_of(**changes), split, WNIDS, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_random_parts_of_images_in_memory_are_refused(imagenet, tmp_path):
    images, labels = load("imagenet", "train", imagenet)
    recipe = tiny_recipe(resized_crop=0.08)
    with refused("resized_crop must be 0 with arrays, got 0.08; use crop"):
        train(recipe, Split(np.asarray(images), labels), WNIDS, tmp_path / "run")


def test_images_that_are_not_in_folders_of_their_classes_are_refused(imagenet):
    for file in (imagenet / "imagenet/val").glob("*/*"):
        file.rename(imagenet / "imagenet/val" / file.name)
    for wnid in WNIDS:
        (imagenet / "imagenet/val" / wnid).rmdir()
    with refused(
        f"no images in {imagenet}/imagenet/val: expected {imagenet}/imagenet/val/CLASS/*.JPEG, "
        "each in a folder of its class"
    ):
        load("imagenet", "test", imagenet)
    assert len(load("imagenet", "train", imagenet).images) == 12


@pytest.mark.medium
@pytest.mark.parametrize("size", [(60_000, 1), (1, 9_000_000), (10**6, 2)])
def test_an_image_too_narrow_to_be_resized_is_refused(tmp_path, size):
    file = tmp_path / "line.png"
    Image.new("1", size).save(file)
    with refused(f"{file} must be less narrow: with a shorter side of 256 it would have "):
        read_middle(file)
    Image.new("1", (600, 2)).save(file)
    assert read_middle(file).shape == (3, 224, 224)
