"""Certification of networks on a GPU beside a plain implementation, in one run."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from macer.certification.largest_radius import certify
from macer.models.build import build_model
from macer.models.inference import for_inference
from macer.system.rates import Measured, comparison, matrix_rate, median_seconds, operations, place

SHAPE = (3, 32, 32)
SIGMA = 0.25
N0 = 100
NETWORKS = ("resnet110", "resnet18", "wide14")


def run_gpu_bench(*, images: int, n: int, device: torch.device) -> Iterator[Measured]:
    """Time certification of CIFAR-10 shapes, plain and ours, with exact and ordinary noise."""
    peak = matrix_rate(device)
    yield from about_gpu(device, peak)
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (images, *SHAPE), dtype=torch.uint8, generator=generator)
    for name in NETWORKS:
        yield _compare(name, pictures.to(device), n, peak)


def about_gpu(device: torch.device, peak: float) -> Iterator[Measured]:
    """Where a benchmark runs, and what it is measured against."""
    gpu = torch.cuda.get_device_name(device)
    yield place(f"{gpu}, torch {torch.__version__}", gpu, peak)
    yield Measured(f"bf16 product of two 8192×8192 matrices: {peak / 1e12:.0f} TFLOP/s", {})


def _compare(name: str, images: Tensor, n: int, peak: float) -> Measured:
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
    for run in ways.values():
        run()  # kernels are compiled and chosen
    taken = median_seconds(ways)
    sizes = {way: len(few if way == "plain" else images) * (N0 + n) for way in ways}
    rate = {way: sizes[way] / seconds for way, seconds in taken.items()}
    share = rate["exact"] * operations(model.cpu(), SHAPE) / peak
    what = f"{name}, {len(images)} images × n = {n}"
    line = (
        f"{what}: plain {rate['plain']:,.0f} samples/s, ours "
        f"{rate['exact']:,.0f} ({rate['ordinary']:,.0f} with ordinary noise), "
        f"ratio {rate['exact'] / rate['plain']:.2f}, exact noise costs "
        f"{rate['ordinary'] / rate['exact'] - 1:+.1%}, {share:.0%} of the matrix rate"
    )
    return comparison(
        line,
        what,
        plain=rate["plain"],
        ours=rate["exact"],
        ordinary=rate["ordinary"],
        matrix_share=share,
    )


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
