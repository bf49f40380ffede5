"""The pace of a network on this machine: the real sampler, timed for a few seconds."""

import time
from collections.abc import Callable

import torch

from macer.certification.budget import Pace
from macer.certification.settings import as_images
from macer.certification.target import Target, prepare
from macer.models.inference import resolve_precision
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import Sampler, network_rows
from macer.smoothing.streams import Purpose
from macer.smoothing.threads import networks_for_threads
from macer.system.progress import bar
from macer.system.rates import steady_rate


def measured_pace(
    target: Target,
    *,
    device: torch.device,
    precision: str = "auto",
    betas: tuple[float, ...] = (),
    exact: bool = True,
    row_by_row: bool = False,
    batch_size: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Pace:
    """Prepare and try a network as certification does, then sample it for about three seconds.

    Weights and image do not matter: all images of a shape take the same time.

    Args:
        betas: inverse temperatures at which a soft bound needs moments.
    """
    started = clock()
    precision = resolve_precision(precision, device)
    model = prepare(target, precision=precision, row_by_row=row_by_row, device=device)
    _ = model.outputs  # computed now, since certification computes them for the journal
    random = torch.Generator().manual_seed(0)
    image = torch.randint(256, (1, *target.shape), dtype=torch.uint8, generator=random)
    sampler = Sampler(
        model=model.network, images=as_images(image.to(device), exact=exact), sigma=target.sigma,
        seed=0, betas=betas, batch_size=batch_size, row_by_row=row_by_row,
    )  # fmt: skip
    sampler.try_network()
    preparation = clock() - started
    return sampled_pace(sampler, device, preparation=preparation, clock=clock)


def sampled_pace(
    sampler: Sampler,
    device: torch.device,
    *,
    preparation: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Pace:
    """The pace of a sampler of one image, whose network was tried before.

    Args:
        preparation: seconds that came before.
    """
    on_cpu = device.type == "cpu"
    threads = torch.get_num_threads() if on_cpu else 1
    threads = len(networks_for_threads(sampler.model, threads))
    rows = network_rows(
        device, sampler.batch_size, sampler.images.shape[1:], row_by_row=sampler.row_by_row
    )
    rate = _samples_per_second(sampler, threads * sampler.task * CHUNK, clock)
    return Pace(rate, preparation, threads, sampler.task, rows, padded=not on_cpu)


def _samples_per_second(sampler: Sampler, least: int, clock: Callable[[], float]) -> float:
    """The rate at which an image is sampled.

    Args:
        least: the fewest samples that keep all threads at work.
    """
    with bar("measuring", 1, "rounds", transient=True):
        return steady_rate(lambda num: sampler.draw(num, Purpose.PROBE), least, clock=clock)
