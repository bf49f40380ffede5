"""A data set that a function of the user's own returns."""

import sys
from pathlib import Path

import numpy as np
import pytest
from data_files import refused

from macer.data.own_set import read_own
from macer.data.sets import load

CODE = """
import numpy as np
import torch

IMAGES = {s: np.full((4, 1, 3, 3), 9 + (s == "test"), np.uint8) for s in ("train", "test")}
LABELS = np.array([0, 1, 0, 1])

def pair(split):
    return IMAGES[split], LABELS

def triple(split):
    return torch.from_numpy(IMAGES[split]), LABELS.tolist(), ["no", "yes"]

def dataset(split):
    return [(image, int(label)) for image, label in zip(IMAGES[split], LABELS)]

def one_name(split):
    return IMAGES[split], LABELS, ["no"]

def four(split):
    return 1, 2, 3, 4

def fails(split):
    raise FileNotFoundError("no photographs in /home")

def needless():
    return IMAGES["train"], LABELS
"""


@pytest.fixture(autouse=True)
def code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "our_data", raising=False)
    Path("our_data.py").write_text(CODE)


# law


@pytest.mark.parametrize("name", ["pair", "triple", "dataset"])
def test_a_function_returns_the_images_and_labels_of_a_split(name):
    for split, level in (("train", 9), ("test", 10)):
        found = load(f"our_data:{name}", split)
        assert found.dataset == f"our_data:{name}"
        assert np.array_equal(found.images, np.full((4, 1, 3, 3), level))
        assert found.labels.tolist() == [0, 1, 0, 1]
        assert found.classes == (("no", "yes") if name == "triple" else ())


def test_the_module_is_found_in_its_home(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(load("our_data:pair", "test", home=str(tmp_path)).images) == 4


# refusal


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("one_name", "data set our_data:one_name, test: classes must be two or more different"),
        ("four", "data set our_data:four, test: data must be (images, labels), "),
        ("fails", "must return the test images, got FileNotFoundError: no photographs in /home"),
        ("needless", "data set our_data:needless must return the test images, got TypeError: "),
        ("LABELS", "no function 'LABELS' in module 'our_data'"),
    ],
)
def test_what_is_no_data_set_is_refused_by_its_name(name, line):
    with refused(line):
        load(f"our_data:{name}", "test")


def test_a_split_of_another_name_is_refused():
    with refused("split must be train or test, got 'val'"):
        read_own("our_data:pair", "val")
