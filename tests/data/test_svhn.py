import numpy as np
import pytest
import scipy.io
from data_files import refused, some_split

from macer.data import svhn
from macer.data.sets import load

# law


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


# refusal


def test_svhn_files_too_large_for_memory_are_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "test_32x32.mat"
    pixels, labels = np.zeros((32, 32, 3, 4), np.uint8), np.ones((4, 1), np.uint8)
    scipy.io.savemat(path, {"X": pixels, "y": labels})
    monkeypatch.setattr(svhn, "_LARGEST", pixels.size - 1)
    with refused("must be at most 12,287 bytes"):
        load("svhn", "test", tmp_path)
    monkeypatch.setattr(svhn, "_LARGEST", 2 * pixels.size)
    assert len(load("svhn", "test", tmp_path).images) == 4


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
