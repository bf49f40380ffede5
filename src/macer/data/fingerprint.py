"""Hashes and statistics of a split's pixels and labels."""

import hashlib

import numpy as np

from macer.data.image_files import ImageFiles
from macer.data.split import Split


def fingerprint(split: Split) -> str:
    """SHA-256 over shape, values and labels; for images in files, over their names and sizes.

    `pixels_sha256` hashes the pixels of an image in a file when they are read.
    """
    digest = hashlib.sha256(repr(tuple(map(int, split.images.shape))).encode())
    if isinstance(split.images, ImageFiles):
        digest.update(repr(list(split.images.sizes())).encode())
    else:
        values = np.ascontiguousarray(split.images)
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        digest.update(little.reshape(-1).view(np.uint8).data)
    digest.update(np.ascontiguousarray(split.labels, "<i8").data)
    return digest.hexdigest()


def pixels_sha256(split: Split, image: np.ndarray) -> str:
    """SHA-256 of an image's pixels if they are in a file; "" if `fingerprint` covers them."""
    if not isinstance(split.images, ImageFiles):
        return ""
    return hashlib.sha256(np.ascontiguousarray(image).data).hexdigest()


def channel_statistics(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for images in [0, 1]."""
    levels, images = np.arange(256) / 255, np.asarray(split.images)
    counts = [
        np.bincount(images[:, channel].reshape(-1), minlength=256)
        for channel in range(images.shape[1])
    ]
    means = [float(np.average(levels, weights=count)) for count in counts]
    variances = [
        float(np.average((levels - mean) ** 2, weights=count))
        for mean, count in zip(means, counts, strict=True)
    ]
    return tuple(means), tuple(variance**0.5 for variance in variances)
