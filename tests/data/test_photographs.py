"""A folder of photographs: what is read, told, refused and found twice."""

import shutil

import numpy as np
import pytest
from data_files import refused
from messy_folder import damage, make_messy, photograph, write
from PIL import Image

from macer.data import photographs
from macer.data.fingerprint import fingerprint
from macer.data.photograph import read_photograph
from macer.data.sets import Rules, load, size_of, sized

SKIP = Rules(skip_damaged=True)


@pytest.fixture
def messy(tmp_path):
    return make_messy(tmp_path)


# law


def test_the_account_of_a_messy_folder_names_everything(messy):
    split = load("folder@16", "test", messy)
    assert split.images.shape == (18, 3, 16, 16)
    summary, *others = split.account.lines()
    assert summary.startswith("test: 18 images in 3 classes: 13 PNG, 2 JPEG, 1 BMP, 1 TIFF, 1 WebP")
    for part in (
        "; the middle of each resized to 16×16 pixels, 0.0 MB in memory; ",
        "1 turned upright",
        "1 CMYK made RGB",
        "2 grey made RGB",
        "1 16-bit made 8-bit",
        "1 palette made RGB",
        "1 transparent laid over white",
        "1 enlarged",
        "; skipped 5 other files: cat/.DS_Store, cat/._000.png, cat/Thumbs.db and 2",
    ):
        assert part in summary, (part, summary)
    assert others == [
        "test: classes without images: emu",
        "test: 2 found twice, 1 of them in two classes: cat/again.png is cat/000.png, "
        "dog/relabelled.png is cat/001.png",
    ]
    assert [name for name, _ in split.account.left_out()] == [
        *("cat/.DS_Store", "cat/._000.png", "cat/Thumbs.db", "dog/notes.txt", "readme.md")
    ]


def test_each_image_is_its_file_prepared_and_has_the_files_class(messy):
    for part in ("train", "test"):
        split = load("folder@16x12", part, messy)
        assert split.classes == ("cat", "dog", "emu")
        for pixels, label, file in zip(split.images, split.labels, split.files, strict=True):
            photograph = read_photograph(messy / file, channels=3, size=(16, 12))
            assert np.array_equal(pixels, photograph.pixels)
            assert file.split("/")[:2] == [part, split.classes[label]]
        assert len({*split.files}) == len(split.files)
    assert split.image(3) == f"image 3 ({split.files[3]})" and split.image(99) == "image 99"
    assert split.part(2, 5).files == split.files[2:5]


def test_a_folder_that_is_all_grey_has_one_channel_at_any_size(tmp_path):
    for part, seed in (("train", 0), ("test", 1)):
        (tmp_path / part / "cat").mkdir(parents=True)
        photograph("cat", seed).convert("L").save(tmp_path / part / "cat/a.png")
    assert load("folder@8", "test", tmp_path).images.shape == (1, 1, 8, 8)
    photograph("cat", 3).save(tmp_path / "train/cat/b.png")
    assert load("folder@8", "test", tmp_path).images.shape == (1, 3, 8, 8)


def test_damaged_files_are_left_out_when_asked_told_and_bound(messy):
    before = fingerprint(load("folder@16", "test", messy))
    damage(messy)
    split = load("folder@16", "test", messy, rules=SKIP)
    assert len(split.images) == len(split.labels) == len(split.files) == 18
    assert fingerprint(split) == before  # what was read is what it was
    [line] = [line for line in split.account.lines() if "damaged" in line]
    assert line.startswith("test: left out 3 damaged files: ")
    assert {name for name, _ in split.account.damaged} == {
        *("cat/cut.jpg", "dog/page.jpg", "dog/zero.png")
    }
    assert all("must be a" in why for _, why in split.account.damaged)
    shutil.copy(messy / "train/cat/002.png", messy / "test/cat/cut.jpg")  # it is whole now
    rules = Rules(skip_damaged=True, duplicates="ignore")
    assert fingerprint(load("folder@16", "test", messy, rules=rules)) != before


def test_the_fingerprint_tells_of_another_size(messy):
    one, other = (fingerprint(load(f"folder@{size}", "test", messy)) for size in ("16", "12x16"))
    assert one != other


def test_the_order_and_the_pixels_do_not_depend_on_threads(messy, monkeypatch):
    before = load("folder@16", "train", messy)
    monkeypatch.setattr(photographs, "THREADS", 1)
    monkeypatch.setattr(photographs, "_BLOCK", 2)
    after = load("folder@16", "train", messy)
    assert np.array_equal(before.images, after.images) and before.files == after.files


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_copy_of_a_training_file_among_the_tests_is_refused_and_may_be_allowed(messy, part):
    shutil.copy(messy / "train/dog/003.png", messy / "test/dog/copied.png")
    with refused("images must not be in training and test both, got 1 that are: "):
        load("folder@16", part, messy)
    split = load("folder@16", part, messy, rules=Rules(duplicates="tell"))
    [line] = [line for line in split.account.lines() if "both" in line]
    assert "train/dog/003.png" in line and "test/dog/copied.png" in line
    quiet = load("folder@16", part, messy, rules=Rules(duplicates="ignore"))
    assert not quiet.account.shared


def test_training_finds_the_same_picture_in_another_form_too(messy):
    with Image.open(messy / "train/dog/003.png") as image:
        image.save(messy / "test/dog/other.tif")
    with refused(
        "train/dog/003.png is test/dog/other.tif; remove one of each two, or add --allow-dup"
    ):
        load("folder@16", "train", messy)


def test_names_of_sizes_are_read_as_they_are_written():
    assert sized("folder", "64") == sized("folder@32", "64x64") == "folder@64"
    assert sized("folder", "48x64") == "folder@48x64" and sized("folder@48", None) == "folder@48"
    assert sized("mnist", None) == "mnist" and sized("nets:data", None) == "nets:data"
    assert size_of("folder@48x64") == (48, 64) and size_of("folder@64") == (64, 64)
    assert size_of("folder") is None and size_of("arrays") is None


# refusal


@pytest.mark.parametrize("file", ["cat/cut.jpg", "dog/page.jpg", "dog/zero.png"])
def test_a_damaged_file_is_refused_by_its_name_and_says_how_to_go_on(messy, file):
    damage(messy)
    for other in {"cat/cut.jpg", "dog/page.jpg", "dog/zero.png"} - {file}:
        (messy / "test" / other).unlink()
    way = r"image: .*; mend or remove it, or add --skip-damaged to go on without it$"
    with pytest.raises(ValueError, match=rf"^{messy / 'test' / file} must be a .*{way}"):
        load("folder@16", "test", messy)


def test_a_folder_of_damaged_files_alone_is_refused(tmp_path):
    (tmp_path / "test/cat").mkdir(parents=True)
    (tmp_path / "test/cat/a.png").touch()
    with refused(f"{tmp_path / 'test'} must have an undamaged image, got 1 damaged"):
        load("folder@16", "test", tmp_path, rules=SKIP)


def test_photographs_of_several_sizes_need_a_size(messy):
    with refused(f"in {messy / 'test/cat/001.png'}; add --size N to resize them"):
        load("folder", "test", messy)


def test_more_photographs_than_memory_are_refused(messy, monkeypatch):
    monkeypatch.setattr(photographs, "MAX_PIXELS", 1000)
    with refused("at most 1,000 bytes of memory, got 18 images of 16×16, which take 13,824; add a"):
        load("folder@16", "test", messy)


@pytest.mark.parametrize("size", ["0", "-1", "1025", "64x", "x64", "64x0", "big", "", "6.4", "٣"])
def test_a_size_that_is_none_is_refused(size):
    with refused(f"size must be N or HEIGHTxWIDTH, each from 1 to 1024, got {size!r}"):
        sized("folder", size)
    with refused("size must be N or HEIGHTxWIDTH"):
        load(f"folder@{size}", "test")


def test_a_size_is_refused_for_data_sets_that_have_one(tmp_path):
    with refused("size must be left out with mnist, whose images have a size of their own, got 32"):
        sized("mnist", "32")
    with refused("size must be left out with imagenet, "):
        load("imagenet@64", "test", tmp_path)


def test_the_messy_folder_is_as_large_as_it_says(tmp_path):
    write(tmp_path, "test", 2, 0)
    assert len(load("folder@8", "test", tmp_path).images) == 4
