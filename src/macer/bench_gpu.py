"""Certification of the paper's network on a GPU beside a plain implementation, in one run."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from macer.building import build_model
from macer.certification import certify
from macer.inference import for_inference

SHAPE = (3, 32, 32)
SIGMA = 0.25
N0 = 100
ROUNDS = 3
NETWORKS = ("resnet110", "resnet18")


def run_gpu_bench(*, images: int, n: int, device: torch.device) -> Iterator[str]:
    """Time certification of CIFAR-10 shapes, plain and ours, with exact and ordinary noise."""
    peak = matrix_rate(device)
    yield f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    yield f"bf16 product of two 8192×8192 matrices: {peak / 1e12:.0f} TFLOP/s"
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (images, *SHAPE), dtype=torch.uint8, generator=generator)
    for name in NETWORKS:
        yield _compare(name, pictures.to(device), n, peak)


def matrix_rate(device: torch.device) -> float:
    """Operations a second of a large bf16 matrix product, the chip's practical ceiling."""
    size = 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(20):
            a @ b
        torch.cuda.synchronize(device)

    return 20 * 2 * size**3 / min(_seconds(products) for _ in range(ROUNDS))


def _compare(name: str, images: Tensor, n: int, peak: float) -> str:
    torch.manual_seed(0)
    model = build_model(name, num_classes=10, shape=SHAPE)
    fast = for_inference(model, shape=SHAPE, precision="bf16", device=images.device)
    plain = model.to(images.device).eval()
    few = images[: max(1, len(images) // 4)]  # rates are compared, and this one takes long
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_certification(plain, few, n),
        "exact": lambda: certify(fast, images, sigma=SIGMA, n0=N0, n=n),
        "ordinary": lambda: certify(fast, images, sigma=SIGMA, n0=N0, n=n, exact=False),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for run in ways.values():
        run()  # kernels are compiled and chosen
    for _ in range(ROUNDS):
        for way, run in ways.items():
            times[way].append(_seconds(run))
    sizes = {way: len(few if way == "plain" else images) * (N0 + n) for way in ways}
    rate = {way: sizes[way] / statistics.median(seconds) for way, seconds in times.items()}
    share = rate["exact"] * operations(model.cpu()) / peak
    return (
        f"{name}, {len(images)} images × n = {n}: plain {rate['plain']:,.0f} samples/s, ours "
        f"{rate['exact']:,.0f} ({rate['ordinary']:,.0f} with ordinary noise), "
        f"ratio {rate['exact'] / rate['plain']:.2f}, exact noise costs "
        f"{rate['ordinary'] / rate['exact'] - 1:+.1%}, {share:.0%} of the matrix rate"
    )


def operations(model: nn.Module) -> int:
    """Floating-point operations of one image's pass, a product and a sum counting as two."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(torch.zeros(1, *SHAPE))
    return int(counter.get_total_flops())


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@torch.no_grad()
def plain_certification(model: nn.Module, images: Tensor, n: int) -> list[Tensor]:
    """One image at a time in fp32 batches of 1,000, noise by `randn`; returns each one's votes."""
    counts = []
    for image in images.float() / 255:
        for samples in (N0, n):
            votes = torch.zeros(10, dtype=torch.int64, device=images.device)
            for start in range(0, samples, 1000):
                batch = image.repeat((min(1000, samples - start), 1, 1, 1))
                labels = model(batch + SIGMA * torch.randn_like(batch)).argmax(1)
                votes += torch.bincount(labels, minlength=10)
        counts.append(votes.cpu())  # of the n estimation samples
    return counts
