import math
from dataclasses import replace

import pytest

from macer.certification.budget import (
    TRUE_RADII,
    Pace,
    PlannedCertification,
    certification_seconds,
    cost,
    course_seconds,
)
from macer.certification.reach import Course, largest_radius
from macer.smoothing.copies import CHUNK
from macer.smoothing.sampling import block_size

# Two threads that take five chunks at once, at 1,000 samples a second together.
CPU = Pace(1000.0, 7.0, threads=2, task=5, rows=100, padded=False)
GPU = Pace(1e5, 7.0, threads=1, task=80, rows=8000, padded=True)
PLANNED = PlannedCertification(CPU, images=500, sigma=0.5, alpha=0.001, n0=100, n=10_000, price=2.5)


def literal_seconds(pace, images, n0, n):
    """The time of all tasks, dealt to whichever thread is free, block after block."""
    size, total = max(50 * max(pace.rows, CHUNK) // (n0 + n), 1), 0.0
    for start in range(0, images, size):
        block = min(size, images - start)
        for num in (n0, n):
            chunks, free = block * math.ceil(num / CHUNK), [0.0] * pace.threads
            for first in range(0, chunks, pace.task):
                taken = pace.task if pace.padded else min(pace.task, chunks - first)
                thread = free.index(min(free))
                free[thread] += taken * CHUNK * pace.threads / pace.samples_per_second
            total += max(free)
    return total


# reference


@pytest.mark.parametrize("pace", [CPU, GPU, replace(CPU, rows=5, task=1), replace(CPU, threads=1)])
@pytest.mark.parametrize(
    ("images", "n0", "n"), [(500, 100, 10_000), (7, 100, 1000), (3, 10, 110), (1, 100, 100_000)]
)
def test_seconds_are_those_of_tasks_dealt_to_threads(pace, images, n0, n):
    ours = certification_seconds(pace, images, n0=n0, n=n)
    assert ours == pytest.approx(literal_seconds(pace, images, n0, n))


# law


def test_more_images_and_samples_never_take_less_time():
    for pace in (CPU, GPU):
        by_n = [certification_seconds(pace, 20, n0=100, n=n) for n in (100, 1000, 5000, 10_000)]
        by_images = [certification_seconds(pace, i, n0=100, n=1000) for i in (1, 2, 20, 21)]
        assert by_n == sorted(by_n) and by_images == sorted(by_images)


def test_a_machine_twice_as_fast_takes_half_the_time():
    slow, fast = (
        certification_seconds(replace(CPU, samples_per_second=rate), 9, n0=100, n=1000)
        for rate in (500.0, 1000.0)
    )
    assert slow == pytest.approx(2 * fast)


def test_costs_add_up():
    size = PLANNED.size(10_000)
    assert size.seconds == pytest.approx(CPU.preparation + 500 * size.seconds_per_image)
    assert size.cost == pytest.approx(size.seconds / 3600 * 2.5)
    assert cost(100, 2.5) + cost(200, 2.5) == pytest.approx(cost(300, 2.5))
    assert cost(100, None) is None and replace(PLANNED, price=None).size(1000).cost is None
    for early in PLANNED.radius(0.5).early:
        assert early.cost == pytest.approx(early.seconds / 3600 * 2.5)


def test_score_saves_what_an_estimation_takes():
    all_right = certification_seconds(CPU, 500, n0=100, n=10_000)
    selections = 500 * CPU.seconds(1, 100)
    assert PLANNED.saved_by_score() == pytest.approx((all_right - selections) / 500)


def test_the_table_has_the_usual_sizes_and_the_one_asked_for():
    assert [size.n for size in PLANNED.sizes()] == [1000, 10_000, 100_000]
    assert [size.n for size in replace(PLANNED, n=2000).sizes()] == [1000, 2000, 10_000, 100_000]
    for size in PLANNED.sizes():
        assert size.radius == largest_radius(size.n, sigma=0.5, alpha=0.001)


def test_a_course_takes_the_time_of_its_looks():
    """Blocks of 4 images: a look at all of them, then at half of them."""
    course = Course(0.9, (100, 200), (1.0, 0.5), 1.0)
    block = CPU.seconds(4, 100) + CPU.seconds(4, 100) + CPU.seconds(2, 200)
    assert course_seconds(CPU, 8, course, n0=100, n=1000) == pytest.approx(2 * block)


def test_a_radius_has_its_samples_for_every_true_radius():
    need = PLANNED.radius(0.5)
    assert [early.true_radius for early in need.early] == [0.5 * share for share in TRUE_RADII]
    assert all(early.samples > PLANNED.n0 for early in need.early)
    assert need.least_n == 40 and need.least_n_early == 44
    few = replace(PLANNED, n=42).radius(0.5)  # enough for n samples at α, not for looks at α/2
    assert few.early == () and few.least_n_early == 44


# known value


def test_known_seconds():
    assert CPU.seconds(1, 100) == 0.2  # one chunk: the other thread is idle
    assert CPU.seconds(1, 1) == 0.2  # the rest of the chunk is padding
    assert CPU.seconds(2, 1000) == 2.0
    assert GPU.seconds(1, 100) == GPU.seconds(80, 100) == 0.08
    assert PLANNED.size(10_000).seconds == 7 + 500 * (0.2 + 10)
    assert [block_size(100, n) for n in (100, 1100, 5000, 100_100)] == [50, 4, 1, 1]
    assert block_size(5, 100) == 50 and block_size(8000, 100_100) == 3
