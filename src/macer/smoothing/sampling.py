"""Monte Carlo: the votes and soft moments of a network under Gaussian noise.

This module samples; it concludes nothing. `certification` turns its tallies into certificates.
"""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macer.models.callables import CallableNetwork
from macer.models.modes import evaluating, network_dtype
from macer.models.probe import check_model, in_parts
from macer.smoothing.confidence import Samples
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies, chunks_for
from macer.smoothing.rows import check_rows, trials
from macer.smoothing.streams import Purpose
from macer.smoothing.tally import SOFT_UNIT, Tally
from macer.smoothing.threads import in_threads, networks_for_threads
from macer.system.errors import Mistake
from macer.system.progress import bar

Progress = Callable[[int], None]

# A batch on an accelerator is large enough that launching its kernels takes no time beside
# running them, also for the smallest networks, and small enough that it fits the memory: 8,192
# images of CIFAR-10, 32,000 of MNIST, 1,000 of ImageNet.
BATCH_VALUES = 8192 * 3 * 32 * 32
LEAST_ROWS, MOST_ROWS = 1000, 32_000

# On a CPU the network sees a chunk, or an equal part of one where images are larger than this
# allows: its activations should fit the caches. 100 images of CIFAR-10, 5 of ImageNet.
CPU_VALUES = 2**20

# Most whole chunks per task of a thread: with fewer, threads wait for Python. Few chunks are shared
# by all threads.
CHUNKS_PER_TASK = 5


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A network, the images to sample it around, and the noise: all that decides the samples.

    Args:
        images: (images, channels, height, width) on the model's device; uint8 gets exact noise,
            float32 ordinary noise. float32 may also have another shape, (inputs, …).
        indices: the number of each image in its data set, which names its noise; 0, 1, … if None.
        betas: inverse temperatures β to take the soft moments at.
        batch_size: rows that the network sees at once on an accelerator, in whole chunks; by
            default `network_rows` decides. On a CPU their number is fixed, since another shape
            could change the logits.
        row_by_row: the network sees one noisy copy at a time.
        num_classes: the network must have so many outputs; any number if None.
        progress: called with the number of samples drawn since the last call.
    """

    model: nn.Module
    images: Tensor
    sigma: float
    seed: int
    indices: Sequence[int] | None = None
    betas: tuple[float, ...] = ()
    batch_size: int | None = None
    row_by_row: bool = False
    num_classes: int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_model(self.model)

    @property
    def exact(self) -> bool:
        """Whether the noise is exact."""
        return self.images.dtype == torch.uint8

    def try_network(self) -> None:
        """Try the network now, as the first draw would, and show the progress."""
        rows = self._rows()
        shown = bar("trying the network", trials(rows), "passes", transient=True)
        with evaluating(self.model), _within_memory(rows), shown as progress:
            check_rows(
                self.model, self.images, rows=rows, sigma=self.sigma,
                dtype=network_dtype(self.model), progress=progress,
            )  # fmt: skip

    @property
    def task(self) -> int:
        """The chunks that a thread, or an accelerator, takes at once."""
        rows = self._rows()
        if self.images.device.type != "cpu":
            return max(rows, CHUNK) // CHUNK
        return CHUNKS_PER_TASK if rows == CHUNK else 1

    def _rows(self) -> int:
        return network_rows(
            self.images.device, self.batch_size, self.images.shape[1:], row_by_row=self.row_by_row
        )

    def draw(
        self,
        num: Samples,
        purpose: Purpose,
        *,
        only: Tensor | None = None,
        after: Samples = 0,
    ) -> Tally:
        """Draw `num` samples of the network around each image and add them up.

        ηⱼ ~ N(0, σ²I);  zⱼ = softmax(β u(x + ηⱼ)) for each β
        A[1, :] ← A[1, :] + zⱼ;  A[2, :] ← A[2, :] + zⱼ²     [Zhai+20, Alg. 2, SampleUnderNoise]
        votes[argmax_c u_c(x + ηⱼ)] ← votes[…] + 1              [Cohen+19, SampleUnderNoise]

        A sample with a non-finite logit votes for nobody and adds nothing.

        Args:
            num: one number, or one per image.
            only: the images to sample, a mask; the others get zeros.
            after: the samples of these images drawn before, in whole chunks; the next ones follow.
                One number, or one per image.
        """
        rows = self._rows()
        copies = self._copies(purpose, rows)
        chosen = np.arange(len(self.images)) if only is None else np.flatnonzero(only.numpy())
        with evaluating(self.model), _within_memory(rows):
            wanted = _Wanted(chosen, len(self.images), num, after)
            results = self._results(copies, rows, wanted)
            classes = check_rows(
                self.model, self.images, rows=rows, sigma=self.sigma, dtype=copies.dtype
            )
            self._check_classes(classes)
            device = self.images.device
            tally = Tally.zeros(len(self.images), len(self.betas), classes, device)
            with closing(results):  # also after a signal: nobody waits for what is not wanted
                for chunks, sums in results:
                    tally.add(torch.from_numpy(chunks.slots).to(device), sums)
                    if self.progress:
                        self.progress(int(chunks.rows.sum()))
        return Tally(*(totals.cpu() for totals in tally))

    def _check_classes(self, classes: int) -> None:
        if self.num_classes not in (None, classes):
            raise Mistake(
                f"num_classes must be the network's number of outputs, {classes}, "
                f"got {self.num_classes}"
            )

    def _copies(self, purpose: Purpose, rows: int) -> NoisyCopies:
        return NoisyCopies(
            self.images,
            range(len(self.images)) if self.indices is None else self.indices,
            sigma=self.sigma,
            seed=self.seed,
            purpose=purpose,
            rows=max(rows, CHUNK),
            dtype=network_dtype(self.model),
        )

    def _results(
        self, copies: NoisyCopies, rows: int, wanted: "_Wanted"
    ) -> Generator[tuple[Chunks, Tally], None, None]:
        """The sums of all chunks in their order, task by task.

        Callables may keep anything anywhere: they are called in this thread alone.
        """
        ended = Event()
        sample = partial(self._sample, copies, rows, ended)
        if self.images.device.type != "cpu" or isinstance(self.model, CallableNetwork):
            tasks = wanted.tasks(copies.shape[0] // CHUNK)
            return (sample(self.model, task) for task in tasks)
        total = wanted.chunks
        networks = networks_for_threads(self.model, total)
        size = min(self.task, max(-(-total // len(networks)), 1))
        return in_threads(sample, wanted.tasks(size), networks, ended=ended)

    @torch.inference_mode()
    def _sample(
        self, copies: NoisyCopies, rows: int, ended: Event, network: nn.Module, task: Chunks
    ) -> tuple[Chunks, Tally]:
        """The sums of each chunk of a task, batch by batch, unless nobody wants them any more."""
        sums = []
        for chunks in task.parts(copies.shape[0] // CHUNK):
            if ended.is_set():
                raise CancelledError
            batch, decided = copies.draw(chunks)
            sums.append(_sums(in_parts(network, batch, rows), decided, chunks, self.betas))
        return task, Tally(*map(torch.cat, zip(*sums, strict=True)))

    def at(self, tally: Tally, beta: float) -> Tally:
        """The tally with the soft moments at one β, if it has them."""
        return tally.at(self.betas.index(beta)) if beta in self.betas else tally


@contextmanager
def _within_memory(rows: int) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise Mistake(
            f"batch_size must fit the GPU's memory, got {rows} rows; lower batch_size"
        ) from None


def network_rows(
    device: torch.device,
    batch_size: int | None,
    shape: Sequence[int],
    *,
    row_by_row: bool = False,
) -> int:
    """The one number of rows that the network sees: whole chunks; on a CPU a chunk or a part of it.

    Args:
        batch_size: by default as many images as fill BATCH_VALUES, within LEAST_ROWS, MOST_ROWS.
        shape: the shape of an image, (channels, height, width), or of another input.
    """
    if row_by_row:
        return 1
    if device.type == "cpu":
        parts = (size for size in range(1, CHUNK + 1) if CHUNK % size == 0)
        return max(size for size in parts if size == 1 or size * math.prod(shape) <= CPU_VALUES)
    fitting = min(max(LEAST_ROWS, BATCH_VALUES // math.prod(shape)), MOST_ROWS)
    return max(1, (batch_size or fitting) // CHUNK) * CHUNK


def block_size(rows: int, samples: int) -> int:
    """How many images are certified together.

    Args:
        rows: that the network sees at once.
        samples: that an image usually needs.
    """
    return max(50 * max(rows, CHUNK) // samples, 1)


class _Wanted:
    """The samples that are wanted of each chosen image, as chunks."""

    def __init__(
        self, chosen: NDArray[np.int64], images: int, num: Samples, after: Samples
    ) -> None:
        self.chosen = chosen
        self.num = np.broadcast_to(num, images)[chosen]
        self.first = np.broadcast_to(after, images)[chosen] // CHUNK
        self.ends = np.cumsum(chunks_for(self.num))  # of each image's chunks among all of them
        self.chunks = int(self.ends[-1]) if len(chosen) else 0

    def tasks(self, size: int) -> Iterator[Chunks]:
        """The chunks of each image from its first on, `size` at a time.

        The last chunk of an image may ask for fewer rows.
        """
        begins = np.concatenate(([0], self.ends[:-1]))
        for start in range(0, self.chunks, size):
            chunks = np.arange(start, min(start + size, self.chunks))
            places = np.searchsorted(self.ends, chunks, side="right")
            numbers = chunks - begins[places]
            asked = np.minimum(CHUNK, self.num[places] - numbers * CHUNK)
            yield Chunks(self.chosen[places], self.first[places] + numbers, asked)


def _sums(logits: Tensor, decided: Tensor, chunks: Chunks, betas: Sequence[float]) -> Tally:
    """What the samples of each chunk of a batch add up to; rows of padding do not count."""
    count = len(chunks.slots)
    logits, decided = logits[: count * CHUNK], decided[: count * CHUNK]
    asked = torch.from_numpy(chunks.rows).to(logits.device)
    counts = (torch.arange(CHUNK, device=logits.device) < asked[:, None]).flatten()
    counts = (counts & decided & logits.isfinite().all(dim=1))[:, None]
    votes = logits.argmax(dim=1, keepdim=True)
    ballots = counts.new_zeros(logits.shape, dtype=torch.int64).scatter_(1, votes, counts.long())
    z = _soft_outputs(torch.where(counts, logits, torch.zeros_like(logits)), betas)
    z = z * counts[:, None]
    return Tally(*(v.view(count, CHUNK, *v.shape[1:]).sum(dim=1) for v in (ballots, z, z * z)))


def _soft_outputs(logits: Tensor, betas: Sequence[float]) -> Tensor:
    """z = softmax(βu) for each β, rounded down: (rows, betas, classes)."""
    u = logits.double()[:, None] * torch.tensor(betas, device=logits.device).double()[:, None]
    return (u.softmax(dim=2) / SOFT_UNIT).long()
