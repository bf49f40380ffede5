"""Draw a folder of photographs to try macer with: python docs/scripts/draw_photographs.py FOLDER

FOLDER/train and FOLDER/test have the classes ball, box and tent, 120 and 20 JPEGs of each, of
640 × 480 pixels and more: one thing of any colour, size and place before a sky and a ground, with
the noise of a camera. The same images come out each time.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

NUMBERS = {"train": 120, "test": 20}
CLASSES = ("ball", "box", "tent")

# The least red, green and blue, and the end of their range.
Range = tuple[tuple[int, int, int], tuple[int, int, int]]
SKY: Range = ((130, 170, 210), (190, 220, 250))
GROUND: Range = ((60, 100, 40), (110, 150, 80))
ANY: Range = ((20, 20, 20), (236, 236, 236))


def photograph(kind: str, random: np.random.Generator) -> Image.Image:
    """One photograph of a thing."""
    width, height = int(random.integers(640, 1025)), int(random.integers(480, 769))
    image = Image.new("RGB", (width, height), _colour(random, SKY))
    draw = ImageDraw.Draw(image)
    horizon = int(height * random.uniform(0.5, 0.8))
    draw.rectangle((0, horizon, width, height), fill=_colour(random, GROUND))
    size = min(width, height) * random.uniform(0.25, 0.45)
    x, y = width * random.uniform(0.35, 0.65), height * random.uniform(0.4, 0.6)
    left, top, right, bottom = x - size, y - size, x + size, y + size
    fill = _colour(random, ANY)
    if kind == "ball":
        draw.ellipse((left, top, right, bottom), fill=fill)
    elif kind == "box":
        draw.rectangle((left, top, right, bottom), fill=fill)
    else:
        draw.polygon([(x, top), (right, bottom), (left, bottom)], fill=fill)
    pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(2)), dtype=np.float64)
    noisy = pixels + random.normal(0, 6, pixels.shape)
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _colour(random: np.random.Generator, between: Range) -> tuple[int, int, int]:
    red, green, blue = map(int, random.integers(*between))
    return red, green, blue


def main(folder: Path) -> None:
    """Draw all of them."""
    random = np.random.default_rng(0)
    for split, number in NUMBERS.items():
        for kind in CLASSES:
            place = folder / split / kind
            place.mkdir(parents=True)
            for i in range(number):
                photograph(kind, random).save(place / f"{kind}{i:03}.jpg", quality=90)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
