"""Our speed beside that of a plain implementation, measured in one run on one machine."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from macer.building import build_model
from macer.certification import Certificate, certify, check_settings
from macer.data import Split, load
from macer.inference import for_inference
from macer.losses import macer_loss
from macer.mistake import Mistake
from macer.models import LeNet
from macer.recipes import TrainRecipe
from macer.trainer import Trainer

SIGMA = 0.25
K = 16
BATCH = 64
N0 = 100
ROUNDS = 3


def run_bench(*, images: int, n: int, train_images: int, device: torch.device) -> Iterator[str]:
    """Time a MACER epoch (LeNet, k = 16) and certification, ours and plain in turn."""
    if device.type == "cuda":
        from macer.bench_gpu import run_gpu_bench

        yield from run_gpu_bench(images=images, n=n, device=device)
        return
    split, test = load("mnist-sample", "train"), load("mnist-sample", "test")
    _check("images", images, 1, len(test.images))
    _check("train_images", train_images, BATCH, len(split.images))
    check_settings(sigma=SIGMA, n0=N0, n=n, alpha=0.001)
    yield f"{torch.get_num_threads()} threads, torch {torch.__version__}, LeNet on 28×28 images"
    train_images -= train_images % BATCH  # our loop leaves a last batch that is not full out
    some = Split(split.images[:train_images], split.labels[:train_images])
    yield _compare(
        f"training, {train_images} images × k = {K}",
        train_images * K,
        lambda: plain_epoch(some),
        lambda: our_epoch(some),
    )
    pictures = torch.from_numpy(test.images[:images])
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


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Mistake(f"{name} must be in {least}…{most}, got {value}")


def _compare(
    what: str, samples: int, plain: Callable[[], object], ours: Callable[[], object]
) -> str:
    """Median times of both, taken in turn so that a busy moment falls on both."""
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(ROUNDS):
        for name, run in (("plain", plain), ("ours", ours)):
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    slow, fast = (statistics.median(times[name]) for name in ("plain", "ours"))
    return (
        f"{what}: plain {samples / slow:,.0f} samples/s, ours {samples / fast:,.0f} samples/s, "
        f"ratio {slow / fast:.2f}"
    )


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


def our_epoch(split: Split) -> int:
    """One epoch of the training loop, as `macer train` takes it; returns its samples."""
    recipe = TrainRecipe(sigma=SIGMA, k=K, batch=BATCH)
    trainer = Trainer(recipe, _lenet(), split, torch.device("cpu"))
    return sum(trainer.samples for _ in trainer.rest_of_epoch())


def plain_epoch(split: Split) -> int:
    """One epoch as research code takes it: shuffled batches, `randn`, the default layout."""
    model, samples = plain_lenet(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    images = torch.from_numpy(split.images).float() / 255
    labels = torch.from_numpy(split.labels)
    for rows in torch.split(torch.randperm(len(images)), BATCH):
        copies = images[rows].repeat_interleave(K, dim=0)
        noisy = copies + SIGMA * torch.randn_like(copies)
        logits = model(noisy).reshape(len(rows), K, 10)
        loss = macer_loss(logits, labels[rows], sigma=SIGMA, lam=12.0, gamma=8.0, beta=16.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        samples += len(copies)
    return samples


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
