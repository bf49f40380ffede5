"""A small data set in the folders of ImageNet."""

from pathlib import Path

import numpy as np
from PIL import Image
from tiny_models import tiny_recipe

WNIDS = ("n01440764", "n01443537", "n02102040")
SIZES = (
    (300, 250),
    (240, 500),
    (64, 64),
    (500, 375),
    (256, 257),
    (170, 300),
)  # width, height


def picture(number: int) -> Image.Image:
    """A photograph of some size; no two are alike."""
    width, height = SIZES[number % len(SIZES)]
    random = np.random.default_rng(number)
    coarse = random.integers(256, size=(8, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)


def make_imagenet(tmp_path: Path) -> Path:
    """A data folder with twelve training and six validation images of three classes."""
    for split, each in (("train", 4), ("val", 2)):
        for label, wnid in enumerate(WNIDS):
            folder = tmp_path / "imagenet" / split / wnid
            folder.mkdir(parents=True)
            for i in range(each):
                picture(label * each + i).save(folder / f"{wnid}_{i}.JPEG", quality=95)
    return tmp_path


def recipe_of(**changes):
    return tiny_recipe(dataset="imagenet", batch=4, k=2, epochs=2, flip=True, **changes)
