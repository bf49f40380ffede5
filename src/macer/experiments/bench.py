"""Certification beside a plain implementation, measured in one run on one machine."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macer.certification.largest_radius import certify
from macer.certification.settings import check_settings
from macer.data.sets import load
from macer.models.build import build_model
from macer.models.inference import for_inference
from macer.models.networks import LeNet
from macer.system.errors import Mistake
from macer.system.rates import Measured, comparison, matrix_rate, median_seconds, operations, place

SIGMA = 0.25
N0 = 100
CLASSES = 10

# On a GPU: these networks, on random images of the shape of CIFAR-10.
GPU_NETWORKS = ("resnet110", "resnet18", "wide14")
GPU_SHAPE = (3, 32, 32)


def run_bench(*, images: int, n: int, device: torch.device) -> Iterator[Measured]:
    """Time certification, ours and plain in turn: LeNet on a CPU, larger networks on a GPU."""
    on_device = _on_gpu if device.type == "cuda" else _on_cpu
    yield from on_device(images, n, device)


def _on_cpu(images: int, n: int, device: torch.device) -> Iterator[Measured]:
    test = load("mnist-sample", "test")
    if not 1 <= images <= len(test.images):
        raise Mistake(f"images must be in 1…{len(test.images)}, got {images}")
    check_settings(sigma=SIGMA, n0=N0, n=n, alpha=0.001)
    threads = f"{torch.get_num_threads()} threads"
    yield place(f"{threads}, torch {torch.__version__}, LeNet on 28×28 images")
    digits = torch.from_numpy(np.asarray(test.images[:images]))
    plain = plain_lenet().eval()
    for precision, what in (("fp32", "certification"), ("bf16", "the same, ours in bf16")):
        ours = for_inference(our_lenet(), shape=(1, 28, 28), precision=precision, device=device)
        yield compare(
            f"{what}, {images} images × n = {n}",
            images * (N0 + n),
            plain=partial(plain_certification, plain, digits, n),
            ours=partial(certify, ours, digits, sigma=SIGMA, n0=N0, n=n),
        )


def compare(
    what: str, samples: int, *, plain: Callable[[], object], ours: Callable[[], object]
) -> Measured:
    """The rates of two ways to draw the same number of samples."""
    seconds = median_seconds({"plain": plain, "ours": ours})
    return comparison(what, plain=samples / seconds["plain"], ours=samples / seconds["ours"])


def _on_gpu(images: int, n: int, device: torch.device) -> Iterator[Measured]:
    peak = matrix_rate(device)
    yield from about_gpu(device, peak)
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (images, *GPU_SHAPE), dtype=torch.uint8, generator=generator)
    for name in GPU_NETWORKS:
        yield _compare_on_gpu(name, pictures.to(device), n, peak)


def about_gpu(device: torch.device, peak: float) -> Iterator[Measured]:
    """Where a benchmark runs, and the matrix rate that its shares are of."""
    gpu = torch.cuda.get_device_name(device)
    yield place(f"{gpu}, torch {torch.__version__}", gpu, peak)
    yield Measured(f"bf16 product of two 8192×8192 matrices: {peak / 1e12:.0f} TFLOP/s", {})


def _compare_on_gpu(name: str, images: Tensor, n: int, peak: float) -> Measured:
    """The rates of a network: plain, and ours with exact and with ordinary noise."""
    torch.manual_seed(0)
    model = build_model(name, num_classes=CLASSES, shape=GPU_SHAPE)
    fast = for_inference(model, shape=GPU_SHAPE, precision="bf16", device=images.device)
    plain = model.to(images.device).eval()
    few = images[: max(1, len(images) // 4)]  # rates are compared, and this way takes long
    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_certification(plain, few, n),
        "exact": lambda: certify(fast, images, sigma=SIGMA, n0=N0, n=n),
        "ordinary": lambda: certify(fast, images, sigma=SIGMA, n0=N0, n=n, exact=False),
    }
    for run in ways.values():
        run()  # compiles and chooses kernels
    seconds = median_seconds(ways)
    samples = {way: len(few if way == "plain" else images) * (N0 + n) for way in ways}
    rate = {way: samples[way] / seconds[way] for way in ways}
    share = rate["exact"] * operations(model.cpu(), GPU_SHAPE) / peak
    return comparison(
        f"{name}, {len(images)} images × n = {n}",
        plain=rate["plain"],
        ours=rate["exact"],
        ordinary=rate["ordinary"],
        matrix_share=share,
    )


class PlainLeNet(LeNet):
    """LeNet as it is usually written: ReLU, then pooling; the same function."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits (images, num_classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


def our_lenet() -> nn.Sequential:
    """LeNet behind its normalisation, with the same weights whenever it is built."""
    torch.manual_seed(0)
    return build_model("lenet", num_classes=CLASSES, shape=(1, 28, 28))


def plain_lenet() -> nn.Sequential:
    """The same weights in the usual order of layers."""
    normalize, network = our_lenet()
    plain = PlainLeNet(num_classes=CLASSES, channels=1)
    plain.load_state_dict(network.state_dict())
    return nn.Sequential(normalize, plain)


@torch.no_grad()
def plain_certification(model: nn.Module, images: Tensor, n: int) -> list[Tensor]:
    """One image at a time in fp32 batches of 1,000, with noise by `randn`.

    Returns:
        The votes (CLASSES,) of the n estimation samples of each image.
    """
    votes_of_images = []
    for image in images.float() / 255:
        for samples in (N0, n):
            votes = torch.zeros(CLASSES, dtype=torch.int64, device=images.device)
            for start in range(0, samples, 1000):
                batch = image.repeat((min(1000, samples - start), 1, 1, 1))
                labels = model(batch + SIGMA * torch.randn_like(batch)).argmax(1)
                votes += torch.bincount(labels, minlength=CLASSES)
        votes_of_images.append(votes.cpu())
    return votes_of_images
