"""Certification beside a plain implementation, measured in one run on one machine."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macer.certification.certificate import Certificate
from macer.certification.largest_radius import certify
from macer.certification.settings import check_settings
from macer.data.sets import load
from macer.errors import Mistake
from macer.models.build import build_model
from macer.models.inference import for_inference
from macer.models.networks import LeNet
from macer.system.rates import Measured, comparison, median_seconds, place

SIGMA = 0.25
N0 = 100


def run_bench(*, images: int, n: int, device: torch.device) -> Iterator[Measured]:
    """Time certification, ours and plain in turn."""
    if device.type == "cuda":
        from macer.experiments.bench_gpu import run_gpu_bench

        yield from run_gpu_bench(images=images, n=n, device=device)
        return
    test = load("mnist-sample", "test")
    if not 1 <= images <= len(test.images):
        raise Mistake(f"images must be in 1…{len(test.images)}, got {images}")
    check_settings(sigma=SIGMA, n0=N0, n=n, alpha=0.001)
    threads = f"{torch.get_num_threads()} threads"
    yield place(f"{threads}, torch {torch.__version__}, LeNet on 28×28 images")
    pictures = torch.from_numpy(np.asarray(test.images[:images]))
    yield _compare(
        f"certification, {images} images × n = {n}",
        images * (N0 + n),
        lambda: plain_certification(pictures, n),
        lambda: our_certification(pictures, n),
    )
    yield _compare(
        f"the same, ours in bf16, {images} images × n = {n}",
        images * (N0 + n),
        lambda: plain_certification(pictures, n),
        lambda: our_certification(pictures, n, "bf16"),
    )


def _compare(
    what: str, samples: int, plain: Callable[[], object], ours: Callable[[], object]
) -> Measured:
    taken = median_seconds({"plain": plain, "ours": ours})
    slow, fast = samples / taken["plain"], samples / taken["ours"]
    line = (
        f"{what}: plain {slow:,.0f} samples/s, ours {fast:,.0f} samples/s, ratio {fast / slow:.2f}"
    )
    return comparison(line, what, plain=slow, ours=fast)


def _lenet() -> nn.Sequential:
    torch.manual_seed(0)
    return build_model("lenet", num_classes=10, shape=(1, 28, 28))


class PlainLeNet(LeNet):
    """LeNet as it is usually written: ReLU, then pooling; the same function."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits (images, num_classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return logits


def plain_lenet() -> nn.Sequential:
    """The same weights in the usual order of layers."""
    normalize, network = _lenet()
    plain = PlainLeNet(num_classes=10, channels=1)
    plain.load_state_dict(network.state_dict())
    return nn.Sequential(normalize, plain)


def our_certification(images: Tensor, n: int, precision: str = "fp32") -> list[Certificate]:
    """All images at once, as `macer certify` does it."""
    model = for_inference(
        _lenet(), shape=(1, 28, 28), precision=precision, device=torch.device("cpu")
    )
    return certify(model, images, sigma=SIGMA, n0=N0, n=n)


@torch.no_grad()
def plain_certification(images: Tensor, n: int) -> list[Counter[int]]:
    """One image at a time in batches of 1,000, noise by `randn`; returns each image's votes."""
    model = plain_lenet().eval()
    counts = []
    for image in images.float() / 255:
        for samples in (N0, n):
            votes: Counter[int] = Counter()
            for start in range(0, samples, 1000):
                batch = image.repeat((min(1000, samples - start), 1, 1, 1))
                logits = model(batch + SIGMA * torch.randn_like(batch))
                votes.update(np.asarray(logits.argmax(1)).tolist())
        counts.append(votes)  # of the n estimation samples
    return counts
