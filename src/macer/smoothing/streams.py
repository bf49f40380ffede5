"""Random streams: every random number is a function of integers that can be written down.

A stream is named by (seed, purpose, image, chunk). It does not depend on the batch size, the order
of the images or a restart. Two purposes never share a number: the samples that select a class
differ from those that bound its probability, as CERTIFY requires.
"""

import hashlib
from enum import IntEnum

import numpy as np
from torch import Generator, Tensor


class Purpose(IntEnum):
    """What a stream is for; the values are part of every recorded result and never change."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2
    INITIALISATION = 3
    ORDER = 4
    AUGMENTATION = 5
    TRAINING = 6
    VALIDATION = 7
    NETWORK = 8  # randomness inside a network in training, such as dropout
    ATTACK = 9
    JUDGEMENT = 10  # of the points that an attack has found
    OBJECTIVE = 11  # what a training objective draws besides its noise
    DROPPING = 12  # the votes that decide which hard images are dropped
    WEIGHTS = 13  # the votes that decide how often the other images are drawn
    PSEUDO_LABELS = 14
    CROPS = 15  # of images read from files
    PROBE = 16  # the test of a network before anything is certified
    OFFSETS = 17  # the votes by which offsets of logits are chosen


def stream(seed: int, purpose: Purpose, image: int = 0, chunk: int = 0) -> np.random.Generator:
    """The stream's generator: Philox-4×64, key (seed, purpose), counter from (chunk, image)."""
    philox = np.random.Philox(
        key=np.array([seed, purpose], dtype=np.uint64),
        counter=np.array([0, 0, chunk, image], dtype=np.uint64),
    )
    return np.random.Generator(philox)


def fill_normal(out: Tensor, *, seed: int, purpose: Purpose, image: int, chunk: int) -> Tensor:
    """Fill a contiguous float32 tensor with the stream's first standard normal numbers."""
    if out.device.type == "cpu":
        # torch's own CPU generator cannot exceed 5.77σ; NumPy's ziggurat has no such limit.
        stream(seed, purpose, image, chunk).standard_normal(dtype=np.float32, out=out.numpy())
        return out
    generator = Generator(out.device).manual_seed(key(seed, purpose, image, chunk))
    return out.normal_(generator=generator)


def key(seed: int, purpose: Purpose, image: int, chunk: int) -> int:
    """A seed that names the stream, for a generator without counters."""
    name = np.array([seed, purpose, image, chunk], dtype="<u8").tobytes()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 1
