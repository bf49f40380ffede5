"""The images of a training step, from the device's memory or from files that are read ahead."""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from macer.data.image_files import ImageFiles
from macer.data.photograph import THREADS
from macer.data.split import Images
from macer.recipes import TrainRecipe
from macer.smoothing.streams import Purpose, stream

AHEAD = 4  # batches that threads read during a step
TOGETHER = 8  # images that a thread reads in one task


def as_floats(inputs: Tensor) -> Tensor:
    """What the network sees: k/255 of 8-bit images; other inputs as they are."""
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs


class Resident:
    """All images on the device; a step selects its own."""

    def __init__(self, images: np.ndarray, device: torch.device) -> None:
        self.images = torch.from_numpy(images).to(device)

    def batches(self, order: Tensor, epoch: int) -> Generator[None]:
        """Before each step; nothing has to be read."""
        while True:
            yield

    def picked(self, rows: Tensor) -> Tensor:
        """The images with these numbers, uint8; or other inputs, float32."""
        return self.images[rows]


class Streamed:
    """Images that threads read from files, batch by batch and some steps ahead."""

    def __init__(
        self, images: ImageFiles, recipe: TrainRecipe, device: torch.device, size: int
    ) -> None:
        self.images, self.recipe = images, recipe
        self._shape = (size, *images.shape[1:])
        self._picked = torch.empty(self._shape, dtype=torch.uint8, device=device)
        self._copies: deque[torch.cuda.Event] = deque()  # copies that may not be finished

    def batches(self, order: Tensor, epoch: int) -> Generator[None]:
        """Before each step, copy its images to where `picked` finds them."""
        numbers, size = order.tolist(), self._shape[0]
        waiting: deque[PendingBatch] = deque()
        pool = ThreadPoolExecutor(THREADS)
        try:
            for start in range(0, len(numbers), size):
                waiting.append(self._read(pool, numbers[start : start + size], epoch))
                if len(waiting) > AHEAD:
                    self._put(waiting.popleft())
                    yield
            while waiting:
                self._put(waiting.popleft())
                yield
        finally:
            pool.shutdown(cancel_futures=True)

    def picked(self, rows: Tensor) -> Tensor:
        """The images of the step, uint8."""
        return self._picked

    def _read(self, pool: ThreadPoolExecutor, numbers: Sequence[int], epoch: int) -> "PendingBatch":
        # Without pinned memory the copy would wait for the device.
        pixels = torch.empty(self._shape, dtype=torch.uint8, pin_memory=self._picked.is_cuda)
        images, starts = pixels.numpy(), range(0, len(numbers), TOGETHER)
        jobs = [(images[i : i + TOGETHER], numbers[i : i + TOGETHER]) for i in starts]
        return PendingBatch(pixels, [pool.submit(self._read_images, *job, epoch) for job in jobs])

    def _read_images(self, out: np.ndarray, numbers: Sequence[int], epoch: int) -> None:
        for pixels, number in zip(out, numbers, strict=True):
            self._read_image(pixels, number, epoch)

    def _read_image(self, out: np.ndarray, number: int, epoch: int) -> None:
        least, seed = self.recipe.resized_crop, self.recipe.seed
        if least:
            out[:] = self.images.part(number, least, stream(seed, Purpose.CROPS, number, epoch))
        else:
            out[:] = self.images.middle(number)

    def _put(self, pending: "PendingBatch") -> None:
        for job in pending.jobs:
            job.result()  # raises the thread's exception
        self._picked.copy_(pending.pixels, non_blocking=True)
        if self._picked.is_cuda:
            self._copies.append(torch.cuda.current_stream().record_event())
            if len(self._copies) > AHEAD:  # else waiting batches would fill the memory
                self._copies.popleft().synchronize()


class PendingBatch(NamedTuple):
    """A batch that threads are writing."""

    pixels: Tensor
    jobs: list[Future[None]]


def feed(
    images: Images, recipe: TrainRecipe, device: torch.device, size: int
) -> Resident | Streamed:
    """The source of a training's images.

    Args:
        size: images per step.
    """
    if isinstance(images, ImageFiles):
        return Streamed(images, recipe, device, size)
    return Resident(np.asarray(images), device)
