import gzip
import os
import pickle
import struct

import numpy as np
import pytest
from data_files import refused, same, some_split, write_idx

from macer.data import formats
from macer.data.sets import load


def cifar10_batch(seed=0):
    return some_split(10_000, (3, 32, 32), seed)


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


class Malicious:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


# law


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("place", ["MNIST/raw", "MNIST", "mnist"])
def test_idx_files_read_back_what_was_written(tmp_path, place, gzipped):
    train, test = some_split(7), some_split(3, seed=1)
    write_idx(tmp_path / place, "train", train, gzipped=gzipped)
    write_idx(tmp_path / place, "test", test, gzipped=gzipped)
    assert same(load("mnist", "train", tmp_path), train)
    assert same(load("mnist", "test", tmp_path), test)


@pytest.mark.slow
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


def test_cifar10_python_version_reads_what_python_2_wrote(tmp_path):
    data = cifar10_batch()
    write_python_batch(tmp_path, python2_pickle(data))
    assert same(load("cifar10", "test", tmp_path), data)


@pytest.mark.medium
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar10_python_version_reads_what_python_3_writes(tmp_path, protocol, order):
    data = cifar10_batch()
    pixels = np.array(data.images.reshape(10_000, 3072), order=order)
    batch = {"data": pixels, "labels": data.labels.tolist(), "batch_label": "testing"}
    write_python_batch(tmp_path, pickle.dumps(batch, protocol))
    assert same(load("cifar10", "test", tmp_path), data)


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


# refusal


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
