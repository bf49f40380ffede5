"""Several seeds of one recipe: mean, spread, standard error, paired difference and median."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from macer.reporting.logs import CertificateLog
from macer.reporting.scores import average_certified_radius, paired_difference, standard_error
from macer.reporting.seeds import contributions, mean_difference, over_seeds, seed_files
from macer.system.errors import Mistake


def log_of(predict: list[int], radius: list[float]) -> CertificateLog:
    """Images 0, 1, 2 … of class 0."""
    label, made = np.zeros(len(predict), np.int64), np.array(predict)
    return CertificateLog(
        "log", np.arange(len(predict)), label, made, np.array(radius), made == label
    )


def random_log(random: np.random.Generator, values: np.ndarray) -> CertificateLog:
    noisy = np.maximum(values + random.normal(0, 0.2, len(values)), 0)
    return log_of([0] * len(values), list(noisy))


# reference


def test_the_mean_its_spread_and_its_error_are_these():
    """By hand: ACRs 1, 2, 6; images' means 2.5, 3.5; s² of images .5, of seeds 7."""
    logs = {s: log_of([0, 0], r) for s, r in ((0, [0.5, 1.5]), (4, [1.0, 3.0]), (7, [6.0, 6.0]))}
    found = over_seeds(logs)
    assert found.seeds == (0, 4, 7) and found.median == 4
    assert found.acrs == pytest.approx((1, 2, 6)) and found.acr == pytest.approx(3)
    assert found.spread == pytest.approx(math.sqrt(7))
    assert found.standard_error == pytest.approx(math.sqrt(0.5 / 2 + 7 / 3))


def test_an_images_contribution_is_the_mean_over_the_seeds():
    logs = log_of([0, 1, -1], [0.5, 0.25, 0.0]), log_of([0, 0, 0], [1.0, 0.5, 0.25])
    np.testing.assert_allclose(contributions(logs), [0.75, 0.25, 0.125])


# law


def test_one_seed_has_the_figures_of_its_log():
    random = np.random.default_rng(0)
    log, other = (random_log(random, np.full(50, 0.5)) for _ in range(2))
    found = over_seeds({0: log})
    assert (found.acr, found.standard_error) == (average_certified_radius(log), standard_error(log))
    assert found.spread is None and found.median == 0
    assert mean_difference({0: log}, other) == paired_difference(log, other)


def test_a_paired_difference_of_the_mean_is_over_the_common_images():
    logs = {0: log_of([0, 0, 0], [1, 2, 3]), 1: log_of([0, 0, 0], [2, 4, 3])}
    other = log_of([0, 1], [0.5, 9.0])  # the second image is wrong there
    found = mean_difference(logs, other)
    assert found.images == 2 and found.difference == pytest.approx((1.0 + 3.0) / 2)
    # images' gains 1 and 3: s² 2; seeds' means over the two images 1.5 and 3: s² 1.125
    assert found.standard_error == pytest.approx(math.sqrt(2 / 2 + 1.125 / 2))


def test_the_standard_error_covers_what_images_and_seeds_do():
    """3 seeds of 100 images, many times over: the mean's true spread is at most the estimate."""
    random = np.random.default_rng(1)
    means, errors = [], []
    for _ in range(300):
        values = random.normal(2, 0.5, 100)
        logs = {s: random_log(random, values + random.normal(0, 0.05)) for s in range(3)}
        found = over_seeds(logs)
        means.append(found.acr)
        errors.append(found.standard_error**2)
    assert 0.95 * np.std(means) < math.sqrt(np.mean(errors)) < 1.15 * np.std(means)


def test_of_an_even_number_the_lower_of_the_middle_two_is_the_median():
    logs = {seed: log_of([0, 0], [acr, acr]) for seed, acr in enumerate((4.0, 1.0, 3.0, 2.0))}
    assert over_seeds(logs).median == 3


def test_logs_are_found_by_the_seed_in_their_names(tmp_path: Path):
    names = ("a", "a-seed-2", "a-seed-10", "a-seed-x", "a-seed-01", "a-seed-1-b", "a-b-seed-1")
    for name in names:
        (tmp_path / f"{name}.tsv.gz").touch()
    found = {seed: file.name for seed, file in seed_files(tmp_path, "a").items()}
    assert found == {0: "a.tsv.gz", 2: "a-seed-2.tsv.gz", 10: "a-seed-10.tsv.gz"}
    assert list(found) == [0, 2, 10]


# refusal


def test_seeds_of_other_images_or_labels_are_refused():
    log = log_of([0, 0], [1, 1])
    for other in (log_of([0], [1]), replace(log, label=np.array([0, 1]))):
        with pytest.raises(Mistake, match="must have the images and labels of log"):
            over_seeds({0: log, 1: other})
