"""Small data sets in the files of their formats."""

import gzip
import re
import struct

import numpy as np
import pytest
from PIL import Image

from macer.data.sets import Split
from macer.system.errors import Mistake

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


def write_image(path, value, *, mode="L", size=(5, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


class Columns:
    """A data set with columns, as Hugging Face's datasets have them."""

    def __init__(self, columns, names=None):
        self.columns, self.column_names = columns, list(columns)
        feature = type("ClassLabel", (), {"names": names})()
        self.features = dict.fromkeys(columns, feature) if names else None

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return iter(self.columns[key])  # some versions give a column that is no list
        return {name: column[key] for name, column in self.columns.items()}
