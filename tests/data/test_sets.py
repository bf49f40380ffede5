import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import IDX, refused, same, some_split, write_idx

from macer.data import downloads, formats
from macer.data.fingerprint import channel_statistics, fingerprint
from macer.data.sets import DATASETS, Split, classes_of, data_folder, load, located
from macer.system.errors import Mistake

# law


@pytest.mark.parametrize("given", ["FashionMNIST/raw", "FashionMNIST", "."])
def test_the_data_folder_may_be_the_data_sets_own(tmp_path, given):
    data = some_split()
    write_idx(tmp_path / "FashionMNIST/raw", "train", data)
    assert same(load("fashion-mnist", "train", tmp_path / given), data)


def test_one_data_sets_own_folder_is_never_read_as_another(tmp_path):
    write_idx(tmp_path / "FashionMNIST/raw", "train", some_split())
    with refused("no files of 'mnist' in "):
        load("mnist", "train", tmp_path / "FashionMNIST/raw")


def test_splits_are_writable_contiguous_and_typed(tmp_path):
    for split in ("train", "test"):
        images, labels = load("mnist-sample", split, tmp_path)
        assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
        assert images.flags.c_contiguous
        assert images.flags.writeable
        assert labels.flags.writeable


def test_the_data_folder_is_the_flag_then_the_variable_then_data(monkeypatch):
    monkeypatch.setenv("MACER_DATA", "/elsewhere")
    assert data_folder(Path("given")) == Path("given")
    assert data_folder(None) == Path("/elsewhere")
    assert data_folder(Path()) == Path()
    monkeypatch.setenv("MACER_DATA", "")  # as good as unset
    assert data_folder(None) == Path("data")
    monkeypatch.delenv("MACER_DATA")
    assert data_folder(None) == Path("data")


def test_located_tells_which_data_sets_are_here(tmp_path):
    write_idx(tmp_path / "mnist", "train", some_split())
    found = {location.name: location.path for location in located(tmp_path)}
    assert list(found) == list(DATASETS)
    assert found["mnist"] is None  # no test split yet
    write_idx(tmp_path / "mnist", "test", some_split())
    found = {location.name: location.path for location in located(tmp_path)}
    assert found["mnist"] == tmp_path / "mnist"
    assert found["mnist-sample"].name == "mnist-sample"
    assert found["cifar10"] is None


@pytest.mark.parametrize("data_set", DATASETS.values(), ids=DATASETS)
def test_every_data_set_agrees_with_itself(data_set):
    assert DATASETS[data_set.name] is data_set
    assert data_set.source
    assert data_set.licence
    if data_set.shape is not None:
        assert len(data_set.mean) == len(data_set.std) == data_set.shape[0]
        assert len(set(data_set.classes)) == (0 if data_set.any_size else 10)


@pytest.mark.parametrize("name", downloads.SOURCES)
def test_downloads_land_where_the_reader_looks_first(name, tmp_path):
    files = {tmp_path / f.path for source in downloads.SOURCES[name] for f in source.files.values()}
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = {path for split in IDX for path in DATASETS[name].files(tmp_path, split)[1]}
    assert found == files


@pytest.mark.medium
def test_importing_the_module_does_not_import_torch():
    program = "import sys, macer.data.sets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_images_and_labels_must_fit_the_data_set(tmp_path):
    folder, good = tmp_path / "MNIST", some_split()
    write_idx(folder, "test", Split(good.images, good.labels + 10))
    with refused("must hold labels below 10, got"):
        load("mnist", "test", tmp_path)
    write_idx(folder, "test", some_split(shape=(1, 14, 14)))
    with refused("must hold (1, 28, 28) images, got (1, 14, 14)"):
        load("mnist", "test", tmp_path)
    write_idx(folder, "test", good)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 1) + b"\1")
    with refused("one or more images and one label per image, got 1 labels for 7 images"):
        load("mnist", "test", tmp_path)
    write_idx(folder, "test", Split(good.images[:0], good.labels[:0]))
    with refused("got 0 labels for 0 images"):
        load("mnist", "test", tmp_path)


def test_a_plain_file_comes_before_a_gzipped_one_and_only_some_are_gzipped(tmp_path):
    plain, zipped = some_split(), some_split(seed=5)
    write_idx(tmp_path / "MNIST", "test", zipped, gzipped=True)
    assert same(load("mnist", "test", tmp_path), zipped)
    write_idx(tmp_path / "MNIST", "test", plain)
    assert same(load("mnist", "test", tmp_path), plain)
    (tmp_path / "test_32x32.mat.gz").touch()
    with refused("no files of 'svhn'"):
        load("svhn", "test", tmp_path)


def test_the_data_folder_may_be_named_from_within_it(tmp_path, monkeypatch):
    write_idx(tmp_path / "FashionMNIST/raw", "train", data := some_split())
    for within in ("FashionMNIST", "FashionMNIST/raw"):
        monkeypatch.chdir(tmp_path / within)
        assert same(load("fashion-mnist", "train", Path()), data)


def test_both_splits_come_from_one_place(tmp_path):
    for place, split in (("MNIST/raw", "test"), ("MNIST", "train"), ("MNIST", "test")):
        write_idx(tmp_path / place, split, some_split())
    with refused(f"expected {tmp_path / 'MNIST/raw/train-images-idx3-ubyte'};"):
        load("mnist", "train", tmp_path)


# known value


def test_the_sample_is_the_beginning_of_mnist():
    train, test = load("mnist-sample", "train"), load("mnist-sample", "test")
    assert train.images.shape == (10_000, 1, 28, 28)
    assert test.images.shape == (2_000, 1, 28, 28)
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert fingerprint(train) == "ca682e5c0bf2ecb26d5437840da051b807d32392f552c4095b7494fa515d1a4e"
    assert fingerprint(test) == "fc78b04bfde99ac68c37a13b90e354127aafe7f5c1e34ce34786391775dc78b8"


def test_the_samples_statistics_are_near_the_published():
    (mean,), (std,) = channel_statistics(load("mnist-sample", "train"))
    assert abs(mean - DATASETS["mnist"].mean[0]) < 0.001
    assert abs(std - DATASETS["mnist"].std[0]) < 0.001


# refusal


def test_an_unknown_data_set_is_refused():
    names = "cifar10, fashion-mnist, folder, imagenet, mnist, mnist-sample, svhn"
    with refused(f"unknown data set 'cifar', did you mean 'cifar10'?; choose from {names}"):
        load("cifar", "train")
    with refused("unknown data set 'cifar'"):
        classes_of("cifar")


def test_an_unknown_split_is_refused():
    with refused("split must be train or test, got 'val'"):
        load("mnist-sample", "val")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        ("fashion-mnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("cifar10", "cifar-10-batches-bin/data_batch_1.bin"),
        ("svhn", "svhn/train_32x32.mat"),
    ],
)
def test_missing_files_are_named_with_what_to_do(tmp_path, name, path):
    with refused(
        f"no files of {name!r} in {tmp_path}: expected {tmp_path / path}; "
        f"run `macer data --download {name} --data {tmp_path}`, or set MACER_DATA"
    ):
        load(name, "train", tmp_path)


def test_a_missing_label_file_is_named(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split())
    missing = tmp_path / "MNIST/t10k-labels-idx1-ubyte"
    missing.unlink()
    with refused(f"expected {missing};"):
        load("mnist", "test", tmp_path)


def test_missing_image_folders_are_named(tmp_path):
    with refused(f"expected {tmp_path / 'test'}; put images into {tmp_path / 'train'}/CLASS/"):
        load("folder", "test", tmp_path)
    with refused(f"expected {tmp_path / 'train'}/CLASS/*.png"):
        classes_of("folder", tmp_path)


@pytest.mark.parametrize("label", [10, -1])
def test_the_first_label_that_is_no_class_is_refused(tmp_path, label, monkeypatch):
    write_idx(tmp_path / "MNIST", "test", good := some_split())
    labels = np.array([9, 0, 9, 0, 9, 0, label])
    monkeypatch.setattr(
        formats, "_idx", lambda path, dims: good.images[:, 0] if dims == 3 else labels
    )
    with refused(f"must hold labels below 10, got {label}"):
        load("mnist", "test", tmp_path)
    labels[-1] = 9
    assert load("mnist", "test", tmp_path).labels.max() == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "train"), "unknown data set 3; choose from cifar10, "),
        ((["mnist"], "train"), "unknown data set ['mnist'], did you mean 'mnist'?; choose from "),
        (("mnist-sample", "valid"), "split must be train or test, got 'valid'"),
        (("mnist", "train", 3), "folder must be the path of the data sets, got 3"),
        (("mnist", "train", "nowhere"), "no files of 'mnist' in nowhere: expected "),
    ],
)
def test_an_argument_that_names_nothing_is_refused(arguments, message):
    with pytest.raises(Mistake) as refusal:
        load(*arguments)
    assert str(refusal.value).startswith(message)
