"""Measure what limits the reading of JPEG files for training: the cores, or Python's lock.

python tests/support/time_reading.py [--threads 1 2 4 8 16] [--seconds 5] [--rounds 2]
    [--device cuda] [--folder FILES]

The files are 500 × 375 and about 100 kB each, as ImageNet's are, or those of --folder. Printed are

- for one thread: the processor's time per image, and what of it is outside Pillow's decoder and
  resizing, which let go of Python's lock. The rest holds the lock or calls the system;
- for each number of threads: images/s by `Streamed`, as a training reads them; per image the
  processor's time of all threads, of the system and of the main thread, page faults, and how often
  a thread waited; with --device cuda the copies to the GPU are in it;
- likewise, as if each thread had a core of its own: decoder and resizing sleep for as long as they
  take, without the lock. Nothing but the lock, and handing it on, limits these;
- for as many processes, each with one thread: images/s together. Nothing is sent between them.

Threads as many as without decoding, and fewer than processes: the lock is the limit. Threads and
processes alike: the cores, the memory or the files are.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from macer.data.image_files import ImageFiles
from macer.losses import load_recipe
from macer.smoothing.streams import Purpose, stream
from macer.training import batches

FILES = 240
BATCH = 128

LEAST = 0.08  # share of the area that a random part has at least

Call = Callable[..., Any]


def main() -> None:
    """Print a line for one thread, then three for each number of threads and round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or made_files(Path(made))
        images = ImageFiles(folder, sorted(file.name for file in folder.iterdir()))
        size = sum(count for _, count in images.sizes()) / len(images)
        say(f"{len(images)} files of {size / 1000:.0f} kB on average, {batches.THREADS} cores")
        alone = one_thread(images)
        say(alone.text())
        for _ in range(asked.rounds):
            for count in asked.threads:
                say(by_threads(images, count, asked.seconds, asked.device))
                with pillow(alone.sleeping):
                    text = by_threads(images, count, asked.seconds, asked.device)
                say(f"  as if each had a core: {text}")
                say(by_processes(images, count, asked.seconds))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def made_files(folder: Path) -> Path:
    """JPEG files of blurred colours with noise."""
    for i in range(FILES):
        random = np.random.default_rng(i)
        colours = random.integers(256, size=(12, 16, 3), dtype=np.uint8)
        smooth = Image.fromarray(colours).resize((500, 375), Image.Resampling.BICUBIC)
        pixels = np.asarray(smooth, np.float32) + random.normal(0, 9, (375, 500, 3))
        picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{i}.jpg", quality=95)
    return folder


def read_part(images: ImageFiles, i: int, epoch: int, out: np.ndarray) -> None:
    """Read a random part of a file, as a training's thread does."""
    out[:] = images.part(i, LEAST, stream(0, Purpose.CROPS, i, epoch))


class Alone(NamedTuple):
    """Seconds of the processor per image, by one thread."""

    total: float
    decoding: float
    resizing: float

    def text(self) -> str:
        """As a line."""
        rest = self.total - self.decoding - self.resizing
        return (
            f"alone: {1e6 * self.total:.0f} us of the processor per image, {1 / self.total:.0f} "
            f"images/s; outside decoder and resizing {1e6 * rest:.0f} us ({rest / self.total:.0%}):"
            f" at most {1 / rest:.0f} images/s by the threads of one process"
        )

    def sleeping(self, name: str, _: Call) -> Call:
        """In the place of Pillow's decoder or resizing, as long a sleep without Python's lock."""

        def call(*arguments: Any, **named: Any) -> Any:
            time.sleep(self.decoding if name == "decode" else self.resizing)
            return (-1, 0) if name == "decode" else Image.new("RGB", arguments[1])

        return call


def one_thread(images: ImageFiles) -> Alone:
    """The processor's time per image, and what of it is in Pillow's decoder and resizing."""
    out, inside = np.empty(images.shape[1:], np.uint8), {"decode": 0.0, "resize": 0.0}

    def timed(name: str, function: Call) -> Call:
        def call(*arguments: Any, **named: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                inside[name] += time.thread_time() - begin

        return call

    count = 2 * len(images)
    with pillow(timed):
        for i in range(len(images)):
            read_part(images, i, 0, out)
        inside.update(decode=0.0, resize=0.0)
        begin = time.thread_time()
        for i in range(count):
            read_part(images, i % len(images), 1 + i, out)
        total = time.thread_time() - begin
    return Alone(total / count, inside["decode"] / count, inside["resize"] / count)


@contextmanager
def pillow(changed: Callable[[str, Call], Call]) -> Iterator[None]:
    """Pillow with its decoder and resizing changed."""
    get_decoder, resize = Image._getdecoder, Image.Image.resize

    class Decoder:
        def __init__(self, *arguments: Any) -> None:
            self._own = get_decoder(*arguments)
            self.decode = changed("decode", self._own.decode)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

    Image._getdecoder = Decoder
    Image.Image.resize = changed("resize", resize)
    try:
        yield
    finally:
        Image._getdecoder = get_decoder
        Image.Image.resize = resize


def by_threads(images: ImageFiles, count: int, seconds: float, device: torch.device) -> str:
    """What so many threads of one process read, as a training has them."""
    batches.THREADS = count
    source = batches.Streamed(images, load_recipe("paper/imagenet-0.25"), device, BATCH)
    order = torch.arange(1 << 20) % len(images)
    read = source.batches(order, 0)
    for _ in range(2):  # batches until all threads run
        next(read)
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    main_thread, done = time.thread_time(), 0
    while time.perf_counter() - begin < seconds:
        next(read)
        done += BATCH
    wall, main_thread = time.perf_counter() - begin, time.thread_time() - main_thread
    after = resource.getrusage(resource.RUSAGE_SELF)
    read.close()
    user, system, faults, waits = (
        (getattr(after, name) - getattr(before, name)) / done
        for name in ("ru_utime", "ru_stime", "ru_minflt", "ru_nvcsw")
    )
    return (
        f"{count} threads: {done / wall:.0f} images/s, {(user + system) * done / wall:.1f} cores "
        f"busy; per image {1e6 * (user + system):.0f} us of the processor, of these "
        f"{1e6 * system:.0f} us of the system and {1e6 * main_thread / done:.0f} us of the main "
        f"thread, {faults:.1f} page faults, {waits:.1f} waits"
    )


def by_processes(images: ImageFiles, count: int, seconds: float) -> str:
    """What so many processes read that send nothing."""
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(count), context.Queue()
    arguments = (images.folder, list(images.names), seconds, ready, rates)
    processes = [context.Process(target=read_alone, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    found = [rates.get() for _ in processes]
    for process in processes:
        process.join()
    used = 1e6 * sum(used for _, used in found) / count
    return f"{count} processes: {sum(rate for rate, _ in found):.0f} images/s; {used:.0f} us each"


def read_alone(folder: Path, names: list[str], seconds: float, ready: Barrier, rates: Any) -> None:
    """Read for so long, when all others are ready; give images/s and the processor's time each."""
    images, done = ImageFiles(folder, names), 0
    out = np.empty(images.shape[1:], np.uint8)
    read_part(images, 0, 0, out)  # imports Pillow
    ready.wait()
    begin, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        read_part(images, done % len(images), 1 + done, out)
        done += 1
    rates.put((done / (time.perf_counter() - begin), (time.process_time() - used) / done))


if __name__ == "__main__":
    main()
