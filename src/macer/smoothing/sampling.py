"""Monte Carlo: the votes and soft moments of a network under Gaussian noise.

This module samples; it concludes nothing. `certification` turns its tallies into certificates.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor, nn

from macer.errors import Mistake
from macer.kernels.graph import has_hooks
from macer.models.modes import evaluating, network_dtype
from macer.models.probe import check_model, in_parts
from macer.smoothing.copies import CHUNK, Chunks, NoisyCopies
from macer.smoothing.rows import check_rows
from macer.smoothing.streams import Purpose
from macer.smoothing.tally import SOFT_UNIT, Tally
from macer.system.signals import finishing_first

Progress = Callable[[int], None]

# A batch on an accelerator is large enough that launching its kernels takes no time beside
# running them, also for the smallest networks, and small enough that it fits the memory: 8,192
# images of CIFAR-10, 32,000 of MNIST, 1,000 of ImageNet.
BATCH_VALUES = 8192 * 3 * 32 * 32
LEAST_ROWS, MOST_ROWS = 1000, 32_000

# On a CPU the network sees a chunk, or an equal part of one where images are larger than this
# allows: its activations should fit the caches. 100 images of CIFAR-10, 5 of ImageNet.
CPU_VALUES = 2**20

# Whole chunks a thread works through before it hands over: fewer make threads wait for Python.
CPU_TASK = 5


def sample_under_noise(
    model: nn.Module,
    images: Tensor,
    num: int,
    *,
    sigma: float,
    seed: int,
    purpose: Purpose,
    indices: Sequence[int],
    betas: Sequence[float] = (),
    drawn: int = 0,
    batch_size: int | None = None,
    row_by_row: bool = False,
    progress: Progress | None = None,
) -> Tally:
    """Draw `num` samples of the network around each image and add them up.

    ηⱼ ~ N(0, σ²I);  zⱼ = softmax(β u(x + ηⱼ)) for each β
    A[1, :] ← A[1, :] + zⱼ;  A[2, :] ← A[2, :] + zⱼ²         [Zhai+20, Alg. 2, SampleUnderNoise]
    votes[argmax_c u_c(x + ηⱼ)] ← votes[…] + 1                  [Cohen+19, SampleUnderNoise]

    A sample with a non-finite logit votes for nobody and adds nothing.

    Args:
        images: (images, channels, height, width) on the model's device; uint8 gets exact noise,
            float32 in [0, 1] ordinary noise.
        indices: the number of each image in its data set, which names its noise.
        betas: inverse temperatures β to take the soft moments at.
        drawn: samples of these images drawn already, in whole chunks; the ones after them follow.
        batch_size: rows the network sees at once on an accelerator, in whole chunks, by default
            as many as `network_rows` says; on a CPU their number is fixed, since another shape
            could change the logits.
        row_by_row: the network sees one noisy copy at a time.
    """
    check_model(model)
    rows = network_rows(images.device, batch_size, images.shape[1:], row_by_row=row_by_row)
    copies = NoisyCopies(
        images,
        indices,
        sigma=sigma,
        seed=seed,
        purpose=purpose,
        rows=max(rows, CHUNK),
        dtype=network_dtype(model),
    )

    on_cpu = images.device.type == "cpu"
    chunks_at_once = copies.shape[0] // CHUNK
    chunks_a_task = CPU_TASK if on_cpu and rows == CHUNK else chunks_at_once
    work = _tasks(len(images), num, drawn // CHUNK, chunks_a_task)
    networks = _one_a_thread(model, len(images) * -(-num // CHUNK)) if on_cpu else [model]
    idle: SimpleQueue[nn.Module] = SimpleQueue()

    @torch.inference_mode()
    def sample(task: Chunks) -> tuple[Chunks, Tally]:
        sums, network = [], idle.get()
        try:
            for chunks in task.parts(chunks_at_once):
                batch, decided = copies.draw(chunks)
                sums.append(_sums(in_parts(network, batch, rows), decided, chunks, betas))
        finally:
            idle.put(network)
        return task, Tally(*map(torch.cat, zip(*sums, strict=True)))

    tally: Tally | None = None
    with evaluating(*networks), _within_memory(rows):
        check_rows(model, images, rows=rows, sigma=sigma, dtype=copies.dtype)
        for network in networks:
            idle.put(network)
        results = _in_threads(sample, work, len(networks)) if on_cpu else map(sample, work)
        for task, sums in results:
            tally = tally or Tally(*(t.new_zeros(len(images), *t.shape[1:]) for t in sums))
            slots = torch.from_numpy(task.slots).to(images.device)
            for total, values in zip(tally, sums, strict=True):
                total.index_add_(0, slots, values)
            if progress:
                progress(int(task.rows.sum()))
    assert tally is not None, "no images or no samples"
    return Tally(*(total.cpu() for total in tally))


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
    """The one number of rows the network sees: whole chunks; on a CPU one, or a part of it.

    Args:
        batch_size: by default as many images as fill BATCH_VALUES, within LEAST_ROWS, MOST_ROWS.
        shape: of an image, (channels, height, width)
    """
    if row_by_row:
        return 1
    if device.type == "cpu":
        parts = (size for size in range(1, CHUNK + 1) if CHUNK % size == 0)
        return max(size for size in parts if size == 1 or size * math.prod(shape) <= CPU_VALUES)
    fitting = min(max(LEAST_ROWS, BATCH_VALUES // math.prod(shape)), MOST_ROWS)
    return max(1, (batch_size or fitting) // CHUNK) * CHUNK


def _sums(logits: Tensor, decided: Tensor, chunks: Chunks, betas: Sequence[float]) -> Tally:
    """What each chunk of a batch adds up to; rows that were not asked for do not count."""
    some = len(chunks.slots)
    logits, decided = logits[: some * CHUNK], decided[: some * CHUNK]
    asked = torch.from_numpy(chunks.rows).to(logits.device)
    counts = (torch.arange(CHUNK, device=logits.device) < asked[:, None]).flatten()
    counts = (counts & decided & logits.isfinite().all(dim=1))[:, None]
    votes = logits.argmax(dim=1, keepdim=True)
    ballots = counts.new_zeros(logits.shape, dtype=torch.int64).scatter_(1, votes, counts.long())
    z = _soft_outputs(torch.where(counts, logits, torch.zeros_like(logits)), betas)
    z = z * counts[:, None]
    parts = (ballots, z, z * z)
    return Tally(*(v.view(some, CHUNK, *v.shape[1:]).sum(dim=1) for v in parts))


def _soft_outputs(logits: Tensor, betas: Sequence[float]) -> Tensor:
    """z = softmax(βu) for each β, rounded down: (rows, betas, classes)."""
    u = logits.double()[:, None] * torch.tensor(betas, device=logits.device).double()[:, None]
    return (u.softmax(dim=2) / SOFT_UNIT).long()


def _tasks(images: int, num: int, first: int, size: int) -> Iterator[Chunks]:
    """The chunks of all images from their first on; an image's last may ask for fewer rows."""
    each = -(-num // CHUNK)
    for start in range(0, images * each, size):
        slots, places = np.divmod(np.arange(start, min(start + size, images * each)), each)
        yield Chunks(slots, first + places, np.minimum(CHUNK, num - places * CHUNK))


def _one_a_thread(model: nn.Module, most: int) -> list[nn.Module]:
    """The model for each of torch's threads: the tensors are shared, all else is its own.

    A network may keep what it has seen on itself during a call, and would find there what another
    thread has seen. What a hook notes, it may note anywhere: such a model runs in one thread, and
    so does one that cannot be copied.
    """
    others = 0 if has_hooks(model) else min(torch.get_num_threads(), most) - 1
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    try:
        return [model, *(copy.deepcopy(model, dict(tensors)) for _ in range(others))]
    except Exception:  # whatever the user's code holds
        return [model]


def _in_threads(
    sample: Callable[[Chunks], tuple[Chunks, Tally]], work: Iterable[Chunks], threads: int
) -> Iterator[tuple[Chunks, Tally]]:
    """The samples in order, drawn by that many threads, each on one core.

    Faster than threads inside each layer, which wait for one another; and the logits then do not
    depend on how many cores there are.
    """
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            pending: deque[Future[tuple[Chunks, Tally]]] = deque()
            for chunks in work:
                with finishing_first():  # nobody would wait for a thread that is half started
                    pending.append(pool.submit(sample, chunks))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    finally:
        torch.set_num_threads(before)
