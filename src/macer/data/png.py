"""Pixels as a PNG file."""

import io

import numpy as np
from numpy.typing import NDArray


def png_file(pixels: NDArray[np.uint8], *, smallest: bool = False) -> bytes:
    """The bytes of a PNG file with these pixels, (channels, height, width); one channel is grey.

    Args:
        smallest: search for the smallest file, which takes longer.
    """
    from PIL import Image

    image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=smallest)
    return file.getvalue()
