"""Noisy copies of inputs, chunk by chunk, on a CPU or a GPU, with ordinary or exact noise."""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macer.smoothing.exact_noise import levels
from macer.smoothing.streams import Purpose, stream

# The number of samples in a chunk. All samples of a chunk are of one image. The number is part of
# the definition of every stream. It divides the usual n0 and n, so that nothing is padded. On a
# CPU a chunk is also what the network sees at once: its activations fit the caches.
CHUNK = 100

Count = TypeVar("Count", int, NDArray[np.int64])


def chunks_for(samples: Count) -> Count:
    """The chunks that hold so many samples of an image; the last one may not be full."""
    return -(-samples // CHUNK)


class Chunks(NamedTuple):
    """Several chunks, one entry per chunk."""

    slots: NDArray[np.int64]  # the position of its image
    numbers: NDArray[np.int64]  # its number among the chunks of its image
    rows: NDArray[np.int64]  # the samples asked for; the rest of the chunk is padding

    def parts(self, size: int) -> "Iterator[Chunks]":
        """The chunks in their order, `size` at a time."""
        for start in range(0, len(self.slots), size):
            yield Chunks(*(values[start : start + size] for values in self))


def channels_last(inputs: Tensor) -> Tensor:
    """Images as (images, height, width, channels); inputs of another shape as they are."""
    return inputs.permute(0, 2, 3, 1) if inputs.ndim == 4 else inputs


def channels_first(inputs: Tensor) -> Tensor:
    """The inverse of `channels_last`: images as the network takes them."""
    return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs


class NoisyCopies:
    """Draws batches of one shape: whole chunks, padded.

    The numbers of a stream are in (row, height, width, channel) order, the layout in which
    convolutions are fastest. For inputs that do not have four dimensions they are in the inputs'
    own order.

    Args:
        images: (images, channels, height, width), uint8 for exact noise, else float32; float32
            may also have another shape, (inputs, …).
        indices: the number of each image in its data set, which names its noise.
        rows: the rows of a batch, a multiple of CHUNK.
    """

    def __init__(
        self,
        images: Tensor,
        indices: Sequence[int],
        *,
        sigma: float,
        seed: int,
        purpose: Purpose,
        rows: int,
        dtype: torch.dtype,
    ) -> None:
        self.pixels = channels_last(images).contiguous()
        self.indices = np.asarray(indices, dtype=np.int64)
        self.sigma, self.seed, self.purpose = sigma, seed, purpose
        self.shape = (rows, *self.pixels.shape[1:])
        self.dtype = dtype
        self.table = levels(sigma) if images.dtype == torch.uint8 else None
        self._thread = threading.local()  # each thread has its own batch
        if images.device.type == "cuda":
            from macer.kernels.noise import GpuNoise, Table

            exact = self.table
            table = Table(exact.thresholds, exact.floats) if exact else None
            self._gpu = GpuNoise(self.pixels, seed, int(purpose), table, rows=CHUNK)

    def draw(self, chunks: Chunks) -> tuple[Tensor, Tensor]:
        """A batch (rows, *shape of an input), and a mask of the rows whose noise is decided.

        The thread's next batch overwrites it.
        """
        if not hasattr(self._thread, "batch"):
            on_gpu = self.pixels.device.type == "cuda"
            dtype = self.dtype if on_gpu else torch.float32
            self._thread.batch = torch.zeros(self.shape, dtype=dtype, device=self.pixels.device)
        batch: Tensor = self._thread.batch
        decided = self._on_gpu(batch, chunks) if batch.is_cuda else self._on_cpu(batch, chunks)
        return channels_first(batch).to(self.dtype), decided

    def _on_gpu(self, batch: Tensor, chunks: Chunks) -> Tensor:
        names = np.stack((chunks.slots, chunks.numbers, self.indices[chunks.slots]))
        table = torch.from_numpy(names).to(batch.device)
        return self._gpu.fill(batch, table, self.sigma) == 0

    def _on_cpu(self, batch: Tensor, chunks: Chunks) -> Tensor:
        decided = np.ones(len(batch), dtype=bool)
        for place, (slot, number, count) in enumerate(zip(*chunks, strict=True)):
            rows = slice(place * CHUNK, place * CHUNK + count)
            self._fill(batch[rows].numpy(), decided[rows], slot, number)
        return torch.from_numpy(decided)

    def _fill(self, out: np.ndarray, decided: np.ndarray, slot: int, number: int) -> None:
        """Write image plus noise. NumPy releases Python's lock and starts no threads."""
        image = self.pixels[slot].numpy()
        random = stream(self.seed, self.purpose, self.indices[slot], number)
        if self.table is None:
            random.standard_normal(dtype=np.float32, out=out)
            np.multiply(out, np.float32(self.sigma), out=out)
            np.add(out, image, out=out)
            return
        raw = random.bit_generator.random_raw(out.size).reshape(out.shape)
        ranks, undecided = self.table.ranks(raw)
        np.add(ranks, image, out=ranks)
        np.take(self.table.floats, ranks, out=out, mode="clip")  # other modes need a buffer
        decided[undecided // image.size] = False
