"""A small MNIST in files, cut from the sample that comes with macer."""

import gzip
from pathlib import Path

from macer.data.sets import DATASETS


def write_mnist(folder: Path, **images: int) -> None:
    """Write the first images of the sample as files of MNIST.

    Args:
        images: how many of `train` and of `t10k`, as the files call the test images.
    """
    source = DATASETS["mnist-sample"].files(Path(), "train")[1][0].parent
    for split, count in images.items():
        for name, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            content = gzip.decompress((source / f"{split}-{name}-ubyte.gz").read_bytes())
            file = folder / "MNIST/raw" / f"{split}-{name}-ubyte"
            file.parent.mkdir(parents=True, exist_ok=True)
            number = count.to_bytes(4, "big")
            file.write_bytes(content[:4] + number + content[8 : header + count * size])
