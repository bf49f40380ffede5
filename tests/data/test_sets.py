"""The data sets: readers, refusals, downloads, augmentation."""

import gzip
import hashlib
import io
import os
import pickle
import re
import struct
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from macer.data import downloads, formats, image_folder, svhn
from macer.data.downloads import Download, File, download
from macer.data.sets import (
    DATASETS,
    Split,
    channel_statistics,
    classes_of,
    data_folder,
    fingerprint,
    load,
    located,
)
from macer.errors import Mistake
from macer.training.augment import augment

IDX = {"train": "train", "test": "t10k"}


def refused(text):
    return pytest.raises(Mistake, match=re.escape(text))


def some_split(count=7, shape=(1, 28, 28), seed=0):
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 256, (count, *shape), np.uint8)
    return Split(images, draw.integers(0, 10, count))


def write_idx(folder, split, data, *, gzipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    count, _, height, width = data.images.shape
    images = struct.pack(">4I", 0x803, count, height, width) + data.images.tobytes()
    labels = struct.pack(">2I", 0x801, count) + data.labels.astype(np.uint8).tobytes()
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{IDX[split]}-{name}-ubyte{'.gz' if gzipped else ''}"
        path.write_bytes(gzip.compress(content, mtime=0) if gzipped else content)


def same(one, other):
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


# Reference


def test_augment_equals_numpy_one_image_at_a_time():
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (20, 3, 6, 5), np.uint8)
    offsets, flips = draw.integers(0, 5, (20, 2)), draw.random(20) < 0.5
    expected = []
    for image, (y, x), flip in zip(images, offsets, flips, strict=True):
        crop = np.pad(image, ((0, 0), (2, 2), (2, 2)))[:, y : y + 6, x : x + 5]
        expected.append(crop[:, :, ::-1] if flip else crop)
    found = augment(*map(torch.from_numpy, (images, offsets, flips)), padding=2)
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    assert np.array_equal(found.numpy(), np.stack(expected))


# Laws


def test_augment_at_the_centre_without_flip_is_the_identity():
    images = torch.from_numpy(some_split().images)
    centre = torch.full((len(images), 2), 4)
    assert torch.equal(augment(images, centre, torch.zeros(7, dtype=torch.bool), padding=4), images)


def test_flipping_twice_is_the_identity():
    images, every = torch.from_numpy(some_split().images), torch.ones(7, dtype=torch.bool)
    centre = torch.zeros(7, 2, dtype=torch.int64)
    twice = augment(augment(images, centre, every, padding=0), centre, every, padding=0)
    assert torch.equal(twice, images)


def test_augment_never_waits_for_its_data():
    images = torch.empty(7, 3, 32, 32, dtype=torch.uint8, device="meta")  # has a shape, no data
    offsets = torch.empty(7, 2, dtype=torch.int64, device="meta")
    flips = torch.empty(7, dtype=torch.bool, device="meta")
    assert augment(images, offsets, flips, padding=4).shape == images.shape


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("place", ["MNIST/raw", "MNIST", "mnist"])
def test_idx_files_read_back_what_was_written(tmp_path, place, gzipped):
    train, test = some_split(7), some_split(3, seed=1)
    write_idx(tmp_path / place, "train", train, gzipped=gzipped)
    write_idx(tmp_path / place, "test", test, gzipped=gzipped)
    assert same(load("mnist", "train", tmp_path), train)
    assert same(load("mnist", "test", tmp_path), test)


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


def cifar10_batch(seed=0):
    return some_split(10_000, (3, 32, 32), seed)


def test_cifar10_binary_version_concatenates_its_batches(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for batch in range(1, 6):
        record = bytes([batch]) + bytes(1024) + bytes([batch] * 1024) + bytes(1024)
        (folder / f"data_batch_{batch}.bin").write_bytes(record * 10_000)
    images, labels = load("cifar10", "train", tmp_path)
    assert images.shape == (50_000, 3, 32, 32)
    assert labels.tolist()[::10_000] == [1, 2, 3, 4, 5]
    assert images[::10_000, 1, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert not images[:, 0::2].any()


def python2_pickle(data):
    """The opcodes that Python 2 and the NumPy of its day wrote, protocol 2."""

    def text(string):
        return b"U" + bytes([len(string)]) + string

    pixels = data.images.tobytes()
    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b"),
            b"\x87R(K\x01M\x10'M\x00\x0c\x86cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R",
            b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<I", len(pixels)) + pixels + b"tb",
        ]
    )
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in data.labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write_python_batch(tmp_path, content):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(content)


def test_cifar10_python_version_reads_what_python_2_wrote(tmp_path):
    data = cifar10_batch()
    write_python_batch(tmp_path, python2_pickle(data))
    assert same(load("cifar10", "test", tmp_path), data)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar10_python_version_reads_what_python_3_writes(tmp_path, protocol, order):
    data = cifar10_batch()
    pixels = np.array(data.images.reshape(10_000, 3072), order=order)
    batch = {"data": pixels, "labels": data.labels.tolist(), "batch_label": "testing"}
    write_python_batch(tmp_path, pickle.dumps(batch, protocol))
    assert same(load("cifar10", "test", tmp_path), data)


@pytest.mark.parametrize("place", ["svhn", "SVHN", "."])
def test_svhn_label_10_means_0(tmp_path, place):
    data = some_split(10, (3, 32, 32))
    labels = np.arange(1, 11, dtype=np.uint8)[:, None]
    (tmp_path / place).mkdir(exist_ok=True)
    variables = {"X": data.images.transpose(2, 3, 1, 0), "y": labels}
    scipy.io.savemat(tmp_path / place / "test_32x32.mat", variables, do_compression=True)
    images, found = load("svhn", "test", tmp_path)
    assert found.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert np.array_equal(images, data.images)


def write_image(path, value, *, mode="L", size=(5, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_folders_are_read_in_sorted_order_and_grey_stays_one_channel(tmp_path):
    for split in ("train", "test"):
        write_image(tmp_path / split / "dog" / "b.png", 30)
        write_image(tmp_path / split / "dog" / "a.png", 20)
        write_image(tmp_path / split / "cat" / "c.PNG", 10)
    images, labels = load("folder", "test", tmp_path)
    assert classes_of("folder", tmp_path) == ("cat", "dog")
    assert images.shape == (3, 1, 4, 5)
    assert images[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert labels.tolist() == [0, 1, 1]


def test_one_coloured_image_of_either_split_makes_both_rgb(tmp_path):
    write_image(tmp_path / "train/cat/a.png", 7)
    write_image(tmp_path / "test/cat/a.png", (1, 2, 3), mode="RGB")
    assert load("folder", "train", tmp_path).images[0, :, 0, 0].tolist() == [7, 7, 7]
    test = load("folder", "test", tmp_path).images
    assert test[0, :, 0, 0].tolist() == [1, 2, 3]
    assert test.flags.c_contiguous


def test_jpeg_images_are_read(tmp_path):
    write_image(tmp_path / "test/cat/a.jpg", 128)
    assert abs(int(load("folder", "test", tmp_path).images[0, 0, 0, 0]) - 128) <= 1


def test_fingerprint_depends_on_shape_pixels_and_labels():
    data = some_split()
    changed = data.images.copy()
    changed[-1, -1, -1, -1] ^= 1
    different = [
        Split(changed, data.labels),
        Split(data.images, (data.labels + 1) % 10),
        Split(data.images.reshape(7, 1, 14, 56), data.labels),
    ]
    assert len({fingerprint(split) for split in (data, *different)}) == 4
    assert fingerprint(data) == fingerprint(Split(data.images.copy(), data.labels.copy()))


def test_channel_statistics_are_numpys(tmp_path):
    data = some_split(5, (3, 8, 8))
    mean, std = channel_statistics(data)
    assert np.allclose(mean, (data.images / 255).mean((0, 2, 3)))
    assert np.allclose(std, (data.images / 255).std((0, 2, 3)))


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


def test_importing_the_module_does_not_import_torch():
    program = "import sys, macer.data.sets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# Known values


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


# Refusals


def test_an_unknown_data_set_is_refused():
    names = "cifar10, fashion-mnist, folder, imagenet, mnist, mnist-sample, svhn"
    with refused(f"unknown data set 'cifar'; choose from {names}"):
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
    with refused(f"expected {tmp_path / 'test'}; put the files there"):
        load("folder", "test", tmp_path)
    with refused(f"expected {tmp_path / 'train'}/CLASS/*.png"):
        classes_of("folder", tmp_path)


def test_a_truncated_idx_file_is_refused_with_both_sizes(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split())
    path = tmp_path / "MNIST/t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-8])
    with refused(f"{path} must be 5,504 bytes, got 5,496; delete it and download again"):
        load("mnist", "test", tmp_path)
    path.write_bytes(b"\0\0\x08")
    with refused(f"{path} must be 16 bytes, got 3, less than its header"):
        load("mnist", "test", tmp_path)


def test_a_gzip_file_cut_short_or_damaged_is_refused(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split(), gzipped=True)
    path = tmp_path / "MNIST/t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with refused(f"{path} must be 5,504 bytes, got 5,504, a gzip file cut short"):
        load("mnist", "test", tmp_path)
    path.write_bytes(whole[:-8] + bytes(8))
    with refused(f"{path} must be a gzip file"):
        load("mnist", "test", tmp_path)


def test_files_that_are_not_idx_are_refused(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split())
    path = tmp_path / "MNIST/t10k-labels-idx1-ubyte"
    path.write_bytes((tmp_path / "MNIST/t10k-images-idx3-ubyte").read_bytes())
    with refused(f"{path} must begin with 00000801 (idx), got 00000803"):
        load("mnist", "test", tmp_path)


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
    with refused("one label for each of one or more images, got 1 labels for 7 images"):
        load("mnist", "test", tmp_path)
    write_idx(folder, "test", Split(good.images[:0], good.labels[:0]))
    with refused("got 0 labels for 0 images"):
        load("mnist", "test", tmp_path)


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


def test_a_file_longer_than_it_says_is_refused(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split())
    path = tmp_path / "MNIST/t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes() + b"\0")
    with refused(f"{path} must be 5,504 bytes, got 5,505; delete it and download again"):
        load("mnist", "test", tmp_path)
    batch = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    batch.parent.mkdir()
    batch.write_bytes(bytes(30_730_001))
    with refused(f"{batch} must be 30,730,000 bytes, got 30,730,001"):
        load("cifar10", "test", tmp_path)


def test_a_file_of_a_header_alone_holds_nothing_and_one_byte_less_is_no_header(tmp_path):
    write_idx(tmp_path / "MNIST", "test", some_split())
    path = tmp_path / "MNIST/t10k-images-idx3-ubyte"
    path.write_bytes(struct.pack(">4I", 0x803, 0, 28, 28))
    assert formats._idx(path, 3).shape == (0, 28, 28)
    path.write_bytes(path.read_bytes()[:-1])
    with refused(f"{path} must be 16 bytes, got 15, less than its header"):
        formats._idx(path, 3)


def test_a_file_may_be_as_large_as_the_limit_and_no_larger(tmp_path, monkeypatch):
    write_idx(tmp_path / "MNIST", "test", some_split())
    size = 16 + 7 * 28 * 28
    monkeypatch.setattr(formats, "_LARGEST_IDX", size)
    assert len(load("mnist", "test", tmp_path).images) == 7
    monkeypatch.setattr(formats, "_LARGEST_IDX", size - 1)
    with refused(f"must be at most {size - 1:,} bytes, got {size:,}"):
        load("mnist", "test", tmp_path)
    zipped = tmp_path / "MNIST/t10k-images-idx3-ubyte.gz"  # a small file of many zeros
    zipped.with_suffix("").unlink()
    zipped.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 7, 28, 28) + bytes(size - 16)))
    with refused(f"must hold at most {size - 1:,} bytes, got a header of {size:,}"):
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


def test_images_of_another_height_alone_are_refused(tmp_path):
    write_image(tmp_path / "test/cat/a.png", 0, size=(5, 5))
    write_image(tmp_path / "test/cat/b.png", 0, size=(5, 4))
    with refused("got 5×4 in"):  # another height alone
        load("folder", "test", tmp_path)


def test_images_have_as_many_pixels_as_the_limit_and_no_more(tmp_path, monkeypatch):
    write_image(path := tmp_path / "a.png", 0, size=(64, 64))
    monkeypatch.setattr(image_folder, "LARGEST_IMAGE", 4096)
    assert image_folder.read_image(path, channels=1).shape == (1, 64, 64)


def test_a_grey_image_after_a_coloured_one_leaves_all_in_colour(tmp_path):
    write_image(tmp_path / "test/cat/a.png", (1, 2, 3), mode="RGB")
    write_image(tmp_path / "test/cat/b.png", 7)
    assert load("folder", "test", tmp_path).images[:, :, 0, 0].tolist() == [[1, 2, 3], [7, 7, 7]]


def test_svhn_files_too_large_for_memory_are_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "test_32x32.mat"
    pixels, labels = np.zeros((32, 32, 3, 4), np.uint8), np.ones((4, 1), np.uint8)
    scipy.io.savemat(path, {"X": pixels, "y": labels})
    monkeypatch.setattr(svhn, "_LARGEST", pixels.size - 1)
    with refused("must be at most 12,287 bytes"):
        load("svhn", "test", tmp_path)
    monkeypatch.setattr(svhn, "_LARGEST", 2 * pixels.size)
    assert len(load("svhn", "test", tmp_path).images) == 4


@pytest.mark.parametrize("kind", ["<u2", "i1", "f4"])
def test_a_pickled_array_of_other_numbers_is_refused(tmp_path, kind):
    pixels = np.zeros((10_000, 3072), np.uint8).view(kind)
    write_python_batch(tmp_path, pickle.dumps({"data": pixels, "labels": [0] * 10_000}, 2))
    with refused("dtype must be u1, got"):
        load("cifar10", "test", tmp_path)


def test_a_truncated_cifar10_batch_is_refused_with_both_sizes(tmp_path):
    path = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    path.parent.mkdir()
    path.write_bytes(bytes(3073))
    with refused(f"{path} must be 30,730,000 bytes, got 3,073; delete it and download again"):
        load("cifar10", "test", tmp_path)


class Malicious:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path, protocol):
    made = tmp_path / "made"
    for attack in (Malicious(os.mkdir, made), Malicious(eval, f"__import__('os').mkdir({made!r})")):
        write_to = tmp_path / "cifar-10-batches-py"
        write_to.mkdir(exist_ok=True)
        (write_to / "test_batch").write_bytes(pickle.dumps({"data": attack}, protocol))
        with refused("was refused: a pickle must hold arrays only, got "):
            load("cifar10", "test", tmp_path)
    assert not made.exists()


@pytest.mark.parametrize(
    "name",
    ["os.system", "numpy.load", "numpy.ndarray.tofile", "_codecs.decode", "builtins.getattr"],
)
def test_a_pickled_name_that_is_not_an_arrays_is_refused(tmp_path, name):
    module, attribute = name.split(".", 1)
    write_python_batch(tmp_path, f"c{module}\n{attribute}\n.".encode())
    with refused(f"was refused: a pickle must hold arrays only, got {name};"):
        load("cifar10", "test", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2], 4),
        pickle.dumps({"data": b"", "labels": []}, 4),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}, 4),
        pickle.dumps({"data": np.zeros((2, 3072)), "labels": [0, 1]}, 4),
        b"cnumpy\nndarray\nN}b.",  # state for a class
    ],
)
def test_a_malformed_pickle_is_refused_with_its_size(tmp_path, content):
    write_python_batch(tmp_path, content)
    with refused(f"(about 31,000,000 bytes), got {len(content):,} bytes that are not ("):
        load("cifar10", "test", tmp_path)


def test_a_malformed_svhn_file_is_refused_with_its_size(tmp_path):
    path = tmp_path / "test_32x32.mat"
    pixels, labels = np.zeros((32, 32, 3, 4), np.uint8), np.ones((4, 1), np.uint8)
    scipy.io.savemat(path, {"X": pixels, "y": labels})
    whole = path.read_bytes()
    for content in (b"", b"nonsense", whole[:5000], whole[:-100]):
        path.write_bytes(content)
        with refused(
            f"{path} must be a MATLAB file of 64,275,384 bytes with X (32, 32, 3, images)"
        ):
            load("svhn", "test", tmp_path)
    for variables in (
        {"X": pixels},
        {"X": pixels * 1.0, "y": labels},
        {"X": pixels, "y": labels[1:]},
    ):
        scipy.io.savemat(path, variables)
        with refused("X (32, 32, 3, images) uint8 and y (images, 1) in 1 to 10, got"):
            load("svhn", "test", tmp_path)
    scipy.io.savemat(path, {"X": pixels, "y": labels - 1})
    with refused("bytes: label 0"):
        load("svhn", "test", tmp_path)


def test_images_of_two_sizes_are_refused_naming_the_first_that_differs(tmp_path):
    write_image(tmp_path / "test/cat/a.png", 0)
    write_image(tmp_path / "test/cat/b.png", 0, size=(6, 4))
    path = tmp_path / "test/cat/b.png"
    with refused(f"one size, 5×4 (width×height) so far, got 6×4 in {path}; resize them"):
        load("folder", "test", tmp_path)


def test_classes_must_agree_between_the_splits(tmp_path):
    for path in ("train/cat", "train/dog", "test/cat", "test/.hidden"):
        (tmp_path / path).mkdir(parents=True)
    with refused(f"{tmp_path / 'test'} must agree, got 'dog' in train only"):
        classes_of("folder", tmp_path)
    (tmp_path / "test/dog").mkdir()
    (tmp_path / "test/emu").mkdir()
    with refused("must agree, got 'emu' in test only"):
        load("folder", "train", tmp_path)


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "test/cat").mkdir(parents=True)
    with refused(f"no images in {tmp_path / 'test'}: expected {tmp_path / 'test'}/CLASS/*.png"):
        load("folder", "test", tmp_path)


def test_an_image_too_large_too_deep_or_damaged_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "test/cat/a.png"
    write_image(path, 0, mode="I;16")
    with refused(f"{path} must have 8 bits a channel, got mode 'I;16'; convert it"):
        load("folder", "test", tmp_path)
    write_image(path, 0, size=(64, 64))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with refused(f"{path} must be a whole PNG or JPEG image"):
        load("folder", "test", tmp_path)
    path.write_bytes(b"GIF89a")
    with refused(f"{path} must be a PNG or JPEG image"):
        load("folder", "test", tmp_path)
    path.write_bytes(content)
    monkeypatch.setattr(image_folder, "LARGEST_IMAGE", 4095)
    with refused(f"{path} must have at most 4,095 pixels, got 64×64"):
        load("folder", "test", tmp_path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # Pillow raises above twice of it
    with refused(f"{path} must have at most 4,095 pixels: Image size (4096 pixels)"):
        load("folder", "test", tmp_path)


def test_our_limit_of_pixels_comes_before_pillows_warning():
    assert image_folder.LARGEST_IMAGE < Image.MAX_IMAGE_PIXELS


def test_the_last_training_images_of_a_folder_are_of_all_classes(tmp_path):
    for split, each in (("train", 30), ("test", 2)):
        for label, name in enumerate(("cat", "dog", "fox")):
            for i in range(each):
                write_image(tmp_path / split / name / f"{i:02}.png", 80 * label + i)
    images, labels = load("folder", "train", tmp_path)
    assert {*labels[-15:]} == {*labels[:15]} == {0, 1, 2}
    assert sorted(images[:, 0, 0, 0].tolist()) == [80 * c + i for c in range(3) for i in range(30)]
    assert (images[:, 0, 0, 0] // 80 == labels).all()
    assert same(load("folder", "train", tmp_path), Split(images, labels))
    assert load("folder", "test", tmp_path).labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_both_splits_come_from_one_place(tmp_path):
    for place, split in (("MNIST/raw", "test"), ("MNIST", "train"), ("MNIST", "test")):
        write_idx(tmp_path / place, split, some_split())
    with refused(f"expected {tmp_path / 'MNIST/raw/train-images-idx3-ubyte'};"):
        load("mnist", "train", tmp_path)


# Downloads, from files and a server on this machine


def described(path, content):
    return File(path, len(content), hashlib.sha256(content).hexdigest())


def offer(monkeypatch, *sources):
    monkeypatch.setitem(downloads.SOURCES, "mnist", sources)


def packed(tmp_path, content, name="packed"):
    path = tmp_path / name
    path.write_bytes(content)
    return path.as_uri()


def tar_of(**members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def contents(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_download_is_unpacked_checked_and_put_in_place(tmp_path, monkeypatch):
    seen = []
    address = packed(tmp_path, gzip.compress(b"hello"))
    offer(monkeypatch, Download(address, 100, downloads.gunzip, {"": described("a/b", b"hello")}))
    folder = tmp_path / "data"
    assert download("mnist", folder, progress=lambda *told: seen.append(told)) == [folder / "a/b"]
    assert (folder / "a/b").read_bytes() == b"hello"
    assert contents(folder) == ["a/b"]
    size = len(gzip.compress(b"hello"))
    assert seen == [(address, size, size)]


def test_a_good_file_is_not_fetched_again_and_another_is_not_overwritten(tmp_path, monkeypatch):
    nowhere = (tmp_path / "nowhere").as_uri()
    offer(monkeypatch, Download(nowhere, 100, downloads.plain, {"": described("a", b"hello")}))
    (tmp_path / "a").write_bytes(b"hello")
    assert download("mnist", tmp_path) == [tmp_path / "a"]
    (tmp_path / "a").write_bytes(b"mine")
    with refused("(4 bytes); move it away and download again"):
        download("mnist", tmp_path)
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_only_expected_members_of_an_archive_are_written(tmp_path, monkeypatch):
    archive = tar_of(one=b"1", two=b"22", three=b"333")
    files = {f"batches/{n}": described(f"x/{n}", c) for n, c in (("one", b"1"), ("two", b"22"))}
    offer(monkeypatch, Download(packed(tmp_path, archive), 10_000, downloads.untar, files))
    folder = tmp_path / "data"
    download("mnist", folder)
    assert contents(folder) == ["x/one", "x/two"]
    (folder / "x/one").unlink()
    download("mnist", folder)
    assert contents(folder) == ["x/one", "x/two"]


def test_links_in_an_archive_are_not_followed(tmp_path, monkeypatch):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        link = tarfile.TarInfo("batches/one")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    files = {"batches/one": described("x/one", b"1")}
    offer(monkeypatch, Download(packed(tmp_path, out.getvalue()), 10_000, downloads.untar, files))
    with refused("must hold x/one, got an archive without"):
        download("mnist", tmp_path / "data")
    assert contents(tmp_path / "data") == []


WRONG = {
    "another checksum": (downloads.plain, b"hellO", 100, "must have SHA-256"),
    "too short": (downloads.plain, b"hell", 100, "(4 bytes); nothing was kept"),
    "too long": (downloads.gunzip, gzip.compress(b"hello!"), 100, "(6 bytes); nothing was kept"),
    "beyond the limit": (downloads.plain, b"hello", 4, "must be at most 4 bytes, got more"),
    "gzip cut short": (downloads.gunzip, gzip.compress(b"hello")[:-3], 100, "cannot download"),
    "not gzip": (downloads.gunzip, b"hello", 100, "cannot download"),
    "tar cut short": (downloads.untar, tar_of(a=b"hello")[:40], 1000, "cannot download"),
    "not tar": (downloads.untar, b"hello", 100, "cannot download"),
    "member missing": (downloads.untar, tar_of(b=b"hello"), 1000, "must hold a, got an archive"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_download_is_refused_and_leaves_nothing(tmp_path, monkeypatch, case):
    unpack, content, limit, message = WRONG[case]
    member = "batches/a" if unpack is downloads.untar else ""
    address = packed(tmp_path, content)
    offer(monkeypatch, Download(address, limit, unpack, {member: described("a", b"hello")}))
    with refused(message):
        download("mnist", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


class CutShort(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/a" else 404)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hel")

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a", "must be 5 bytes, got 3; download again"),
        ("b", "HTTP Error 404: Not Found; try again"),
    ],
)
def test_a_transfer_cut_short_or_failed_leaves_nothing(tmp_path, monkeypatch, path, message):
    with HTTPServer(("127.0.0.1", 0), CutShort) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/{path}"
            files = {"": described("a", b"hello")}
            offer(monkeypatch, Download(address, 100, downloads.plain, files))
            with refused(message):
                download("mnist", tmp_path)
        finally:
            server.shutdown()
            thread.join()
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_without_a_download_is_refused(tmp_path):
    with refused(
        "no download for data set 'folder'; choose from cifar10, fashion-mnist, mnist, svhn"
    ):
        download("folder", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "train"), "unknown data set 3; choose from cifar10, "),
        ((["mnist"], "train"), "unknown data set ['mnist']; choose from cifar10, "),
        (("mnist-sample", "valid"), "split must be train or test, got 'valid'"),
        (("mnist", "train", 3), "folder must be the path of the data sets, got 3"),
        (("mnist", "train", "nowhere"), "no files of 'mnist' in nowhere: expected "),
    ],
)
def test_an_argument_that_names_nothing_is_refused(arguments, message):
    with pytest.raises(Mistake) as refusal:
        load(*arguments)
    assert str(refusal.value).startswith(message)
