"""Monte Carlo: the votes and soft moments of a network under Gaussian noise.

This module samples; it concludes nothing. `certify` turns its tallies into certificates.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from macer.noise import Purpose, fill_normal

Progress = Callable[[int], None]

# Noise comes in chunks of this many samples; part of the definition of every stream.
CHUNK = 128

# Soft outputs are rounded down to multiples of 2⁻²⁰. Their sums are then integers, the same in
# any order, and Σ z² of 8 million samples still fits an int64.
SOFT_UNIT = 2.0**-20


class Tally(NamedTuple):
    """What the samples of each image add up to; every array is (images, classes) int64."""

    votes: Tensor  # how often f(x + η) = c
    first: Tensor  # Σⱼ zᶜ(x + ηⱼ) in units of 2⁻²⁰: A[1, :]
    second: Tensor  # Σⱼ zᶜ(x + ηⱼ)² in units of 2⁻⁴⁰: A[2, :]


def sample_under_noise(
    model: nn.Module,
    images: Tensor,
    num: int,
    *,
    sigma: float,
    seed: int,
    purpose: Purpose,
    indices: Sequence[int],
    beta: float = 1.0,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Tally:
    """Draw `num` samples of the network around each image and add them up.

    ηⱼ ~ N(0, σ²I);  zⱼ = softmax(β u(x + ηⱼ))
    A[1, :] ← A[1, :] + zⱼ;  A[2, :] ← A[2, :] + zⱼ²         [Zhai+20, Alg. 2, SampleUnderNoise]
    votes[argmax_c u_c(x + ηⱼ)] ← votes[…] + 1                  [Cohen+19, SampleUnderNoise]

    A sample with a non-finite logit votes for nobody and adds nothing.

    Args:
        images: (images, channels, height, width) float32 in [0, 1], on the model's device.
        indices: the number of each image in its data set, which names its noise.
    """
    batch_size = batch_size or default_batch_size(images)
    tally: Tally | None = None
    with evaluating(model), torch.inference_mode():
        for batch, slots, rows in _packed(
            images, indices, num, sigma=sigma, seed=seed, purpose=purpose, batch_size=batch_size
        ):
            logits = model(batch)
            if tally is None:
                tally = _empty_tally(len(images), logits)
            _add(tally, logits[:rows], slots[:rows].to(logits.device), beta)
            if progress:
                progress(rows)
    assert tally is not None, "no images or no samples"
    return Tally(*(total.cpu() for total in tally))


def default_batch_size(images: Tensor) -> int:
    """Large on an accelerator; on a CPU, as many images as its caches hold activations for."""
    pixels = images[0].numel()
    return 8192 if images.device.type != "cpu" else max(16, 2**18 // pixels // 64 * 64)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, each of its parts back in its own mode afterwards."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _empty_tally(images: int, logits: Tensor) -> Tally:
    shape = (images, logits.shape[1])
    return Tally(*(torch.zeros(shape, dtype=torch.int64, device=logits.device) for _ in range(3)))


def _add(tally: Tally, logits: Tensor, slots: Tensor, beta: float) -> None:
    """Add one batch; `slots` says which image each row belongs to."""
    valid = logits.isfinite().all(dim=1)
    votes = logits.argmax(dim=1)
    tally.votes.index_put_((slots, votes), valid.long(), accumulate=True)
    z = (beta * torch.where(valid[:, None], logits, 0.0).double()).softmax(dim=1)
    units = (z / SOFT_UNIT).long() * valid[:, None]
    tally.first.index_add_(0, slots, units)
    tally.second.index_add_(0, slots, units * units)


def _packed(
    images: Tensor,
    indices: Sequence[int],
    num: int,
    *,
    sigma: float,
    seed: int,
    purpose: Purpose,
    batch_size: int,
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Noisy copies of all images in batches of one shape: (batch, image of each row, rows used).

    The last batch keeps its shape and uses fewer rows: a ragged batch would change the logits on
    real hardware. The batch is one buffer, overwritten when the next one is asked for.
    """
    batch = torch.zeros((batch_size, *images.shape[1:]), device=images.device)
    batch = batch.contiguous(memory_format=torch.channels_last)
    slots = torch.zeros(batch_size, dtype=torch.int64)
    filled = 0
    for slot, noise in _noise(images, indices, num, seed=seed, purpose=purpose):
        while len(noise):
            end = min(filled + len(noise), batch_size)
            rows = end - filled
            torch.add(images[slot], noise[:rows], alpha=sigma, out=batch[filled:end])
            slots[filled:end] = slot
            noise, filled = noise[rows:], end % batch_size
            if filled == 0:
                yield batch, slots, batch_size
    if filled:
        yield batch, slots, filled


def _noise(
    images: Tensor, indices: Sequence[int], num: int, *, seed: int, purpose: Purpose
) -> Iterator[tuple[int, Tensor]]:
    """Standard normal noise for every image, chunk by chunk: (position of the image, noise)."""

    def draw(slot: int, start: int) -> tuple[int, Tensor]:
        rows = min(CHUNK, num - start)
        out = torch.empty((rows, *images.shape[1:]), device=images.device)
        chunk = start // CHUNK
        fill_normal(out, seed=seed, purpose=purpose, image=indices[slot], chunk=chunk)
        return slot, out

    jobs = ((slot, start) for slot in range(len(images)) for start in range(0, num, CHUNK))
    if images.device.type != "cpu":
        yield from (draw(*job) for job in jobs)
        return
    # NumPy fills without holding Python's lock: the next chunks are drawn while the network runs.
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        pending: deque[Future[tuple[int, Tensor]]] = deque()
        for job in jobs:
            pending.append(pool.submit(draw, *job))
            if len(pending) > 4 * torch.get_num_threads():
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
