"""Our speed beside that of a plain implementation, measured in one run on one machine."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from macer.building import build_model
from macer.certification import certify
from macer.data import Split, load
from macer.losses import macer_loss
from macer.recipes import TrainRecipe
from macer.trainer import Trainer

SIGMA = 0.25
ROUNDS = 3


def run_bench(*, images: int, n: int, train_images: int) -> Iterator[str]:
    """Time a MACER epoch (LeNet, k = 16) and certification, ours and plain in turn."""
    yield f"{torch.get_num_threads()} threads, torch {torch.__version__}, LeNet on 28×28 images"
    split = load("mnist-sample", "train")
    some = Split(split.images[:train_images], split.labels[:train_images])
    yield _compare(
        f"training, {train_images} images × k = 16",
        train_images * 16,
        lambda: plain_epoch(some),
        lambda: our_epoch(some),
    )
    pictures = torch.from_numpy(load("mnist-sample", "test").images[:images])
    yield _compare(
        f"certification, {images} images × n = {n}",
        images * (100 + n),
        lambda: plain_certification(pictures, n),
        lambda: our_certification(pictures, n),
    )


def _compare(what: str, samples: int, plain: Callable[[], None], ours: Callable[[], None]) -> str:
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


def our_epoch(split: Split) -> None:
    """One epoch of the training loop, as `macer train` takes it."""
    trainer = Trainer(TrainRecipe(sigma=SIGMA), _lenet(), split, torch.device("cpu"))
    for _ in trainer.rest_of_epoch():
        pass


def plain_epoch(split: Split) -> None:
    """One epoch as research code takes it: shuffled batches, `randn`, the default layout."""
    model = _lenet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    images = torch.from_numpy(split.images).float() / 255
    labels = torch.from_numpy(split.labels)
    for rows in torch.split(torch.randperm(len(images)), 64):
        copies = images[rows].repeat_interleave(16, dim=0)
        noisy = copies + SIGMA * torch.randn_like(copies)
        logits = model(noisy).reshape(len(rows), 16, 10)
        loss = macer_loss(logits, labels[rows], sigma=SIGMA, lam=12.0, gamma=8.0, beta=16.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def our_certification(images: Tensor, n: int) -> None:
    """All images at once, as `macer certify` does it."""
    certify(_lenet().to(memory_format=torch.channels_last), images, sigma=SIGMA, n=n)  # type: ignore[call-overload]


@torch.no_grad()
def plain_certification(images: Tensor, n: int) -> None:
    """One image at a time in batches of 1,000, noise by `randn`, votes counted on the host."""
    model = _lenet().eval()
    for image in images.float() / 255:
        for samples in (100, n):
            votes: Counter[int] = Counter()
            for start in range(0, samples, 1000):
                batch = image.repeat((min(1000, samples - start), 1, 1, 1))
                logits = model(batch + SIGMA * torch.randn_like(batch))
                votes.update(np.asarray(logits.argmax(1)).tolist())
