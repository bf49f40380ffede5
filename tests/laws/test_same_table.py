"""One table, byte for byte, however and however often interrupted its certificates were made."""

import random
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from processes import surroundings
from torch import nn

from macer.certification.data_set import certify_data_set
from macer.certification.journal import read_journal
from macer.certification.preparation import plan_certification
from macer.certification.target import Target, weights_digest
from macer.data.sets import Split, load
from macer.models.networks import lenet
from macer.recipes import CertifyRecipe

pytestmark = pytest.mark.slow

SIGMA, IMAGES = 0.25, 13
BATCH_SIZES, WORKERS = (1, 7, 64, 256, 1000), (1, 2, 4)
ORDERS = ("natural", "reversed", "shuffled")

# Certified in blocks of four images at a time, the last chunk of each image padded.
RECIPE = CertifyRecipe(n0=20, n=1150, alpha=0.01)


def recipe_by(bound: str) -> CertifyRecipe:
    return replace(RECIPE, bound=bound)


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def small_network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)
    return nn.Sequential(*layers)


def target_of(model: nn.Module, side: int = 14) -> Target:
    return Target(model, "net", "net", SIGMA, (1, side, side), 10, weights_digest(model))


def first_images(images: int, side: int = 14) -> Split:
    """Digits of 28 by 28 pixels, or every second of them for 14."""
    split, step = load("mnist-sample", "test"), 28 // side
    return Split(split.images[:images, :, ::step, ::step], split.labels[:images])


def in_order(order: str, images: int) -> list[int]:
    indices = list(range(images))
    if order == "shuffled":
        random.Random(images).shuffle(indices)
    return indices[::-1] if order == "reversed" else indices


def table(target, split, folder, recipe=RECIPE, *, batch_size=None, workers=1, order="natural"):
    """The bytes of certificates.tsv."""
    torch.set_num_threads(workers)
    certification = plan_certification(
        target, split, "digits", recipe, device=torch.device("cpu"), batch_size=batch_size
    )
    certify_data_set(certification, in_order(order, len(split.labels)), folder)
    return (folder / "certificates.tsv").read_bytes()


# law


@pytest.mark.parametrize("exact", [True, False])
def test_one_table_for_every_batch_size_number_of_workers_and_order(tmp_path, exact):
    target, split = target_of(small_network()), first_images(IMAGES)
    recipe = CertifyRecipe(n0=20, n=1150, alpha=0.01, exact=exact)
    tables = {
        (batch_size, workers, order): table(
            target, split, tmp_path / f"{batch_size}-{workers}-{order}", recipe,
            batch_size=batch_size, workers=workers, order=order,
        )
        for batch_size, workers, order in product(BATCH_SIZES, WORKERS, ORDERS)
    }  # fmt: skip
    assert len(tables) == 45
    assert len(set(tables.values())) == 1, "the tables differ"
    check_variety(tables[1, 1, "natural"])


@pytest.mark.parametrize(
    ("bound", "columns"), [("runner-up", b"\tcounts\tp_b"), ("anytime", b"\tcounts")]
)
def test_one_table_by_other_bounds(tmp_path, bound, columns):
    target, split = target_of(small_network()), first_images(IMAGES)
    recipe = recipe_by(bound)
    first, *others = (
        table(
            target, split, tmp_path / order, recipe, batch_size=size, workers=workers, order=order
        )
        for size, workers, order in zip((1, 64, 1000), WORKERS, ORDERS, strict=True)
    )
    assert others == [first, first]
    assert first.splitlines()[0].endswith(columns)
    check_variety(first)


def check_variety(content: bytes) -> None:
    """A table of equal rows would be the same by chance."""
    rows = [line.split(b"\t") for line in content.splitlines()[1:]]
    assert len({row[14] for row in rows}) == len(rows)  # their counts
    assert 0 < sum(row[2] == b"-1" for row in rows) < len(rows)


def test_one_table_for_a_network_of_the_paper(tmp_path):
    torch.manual_seed(0)
    target, split = target_of(lenet(num_classes=10, channels=1), side=28), first_images(3, side=28)
    recipe = CertifyRecipe(n0=20, n=500)
    first, *others = (
        table(
            target, split, tmp_path / order, recipe, batch_size=size, workers=workers, order=order
        )
        for size, workers, order in zip((1, 64, 1000), WORKERS, ORDERS, strict=True)
    )
    assert others == [first, first]


def test_another_seed_gives_another_table(tmp_path):
    target, split = target_of(small_network()), first_images(4)
    one, other = (
        table(target, split, tmp_path / str(seed), CertifyRecipe(n0=20, n=1150, seed=seed))
        for seed in (0, 1)
    )
    assert one != other


# Imports once, then forks a certifying process for every line it is sent: its folder and the
# seconds until it is killed, if it is.
NURSERY = """
import os, signal, sys, time
from pathlib import Path
sys.path.append(sys.argv[1])
from macer.smoothing.exact_noise import levels
from test_same_table import IMAGES, SIGMA, first_images, recipe_by, small_network, table, target_of

target, split = target_of(small_network()), first_images(IMAGES)
levels(SIGMA)
for line in sys.stdin:
    seconds, folder = line.rstrip().split(maxsplit=1)
    child = os.fork()
    if child == 0:
        try:
            table(target, split, Path(folder), recipe_by(sys.argv[2]))
            os._exit(0)
        finally:
            os._exit(1)
    if seconds != "never":
        time.sleep(float(seconds))
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("bound", "times"), [("clopper-pearson", 200), ("runner-up", 20)])
def test_one_table_after_many_kills(tmp_path, bound, times):
    """The moments are spread over a whole life; each table is begun again till it is done."""
    draw, kills, halfway, tables = random.Random(0), 0, 0, [tmp_path / "0"]
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, str(Path(__file__).parent), bound],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=surroundings() | {"OPENBLAS_NUM_THREADS": "1"},  # safe to fork
    ) as nursery:  # fmt: skip
        seconds = min(undisturbed(nursery, tmp_path / f"whole-{i}") for i in range(4))
        whole = (tmp_path / "whole-0" / "certificates.tsv").read_bytes()
        check_variety(whole)
        while kills < times:
            found = set(records(tables[-1]))
            if live(nursery, tables[-1], draw.uniform(0, seconds)) == 0:
                check_finished(tables[-1], whole)
                tables.append(tmp_path / str(len(tables)))
                continue
            kills += 1
            assert found <= set(records(tables[-1]))
            halfway += 0 < len(records(tables[-1])) < IMAGES
        live(nursery, tables[-1], "never")
        check_finished(tables[-1], whole)
        nursery.stdin.close()
    assert halfway >= times // 10  # not only kills before anything was done


def undisturbed(nursery, folder: Path) -> float:
    """The seconds of a whole life."""
    started = time.monotonic()
    assert live(nursery, folder, "never") == 0
    return time.monotonic() - started


def live(nursery, folder: Path, seconds) -> int:
    """One certifying process: 0 if it finished, −9 if it was killed before."""
    nursery.stdin.write(f"{seconds} {folder}\n")
    nursery.stdin.flush()
    code = int(nursery.stdout.readline())
    assert code in (0, -9)
    return code


def records(folder: Path):
    journal = folder / "certificates.journal"
    return read_journal(journal).records if journal.exists() else {}


def check_finished(folder: Path, whole: bytes) -> None:
    assert (folder / "certificates.tsv").read_bytes() == whole
    names = sorted(path.name for path in folder.iterdir())
    assert names == [".lock", "certificates.journal", "certificates.tsv"]


# known value


def test_the_table_says_nothing_of_the_time_and_the_journal_does(tmp_path):
    content = table(target_of(small_network()), first_images(2), tmp_path)
    assert [row.split(b"\t")[5] for row in content.splitlines()] == [b"time", b"0.0", b"0.0"]
    assert all(record.seconds > 0 for record in records(tmp_path).values())
