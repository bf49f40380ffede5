"""A log that cannot stand on a board of the leaderboard is refused, with what to certify."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from macer.recipes import CertifyRecipe
from macer.reporting.board_check import BOUND, WHAT_TO_CERTIFY, check_log
from macer.reporting.leaderboard import SETTINGS
from macer.reporting.logs import CertificateLog, read_log
from macer.system.errors import Mistake

PUBLISHED = Path(__file__).parents[2] / "results/published"


@pytest.fixture(scope="module")
def macer() -> CertificateLog:
    return read_log(PUBLISHED / "macer_sigma0.5.tsv.gz")


# law


def test_every_published_radius_is_within_the_ceiling(macer):
    check_log(macer, 0.5, macer)


def test_a_usual_certification_stands_on_a_board():
    usual = CertifyRecipe()
    assert {name: getattr(usual, name) for name in SETTINGS} == SETTINGS
    assert usual.bound == BOUND


# known value


def test_what_to_certify():
    assert WHAT_TO_CERTIFY == (
        "certify cifar10 with --skip 5 --n0 100 --n 100000 --alpha 0.001 --bound clopper-pearson"
    )


# refusal


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sigma": 0.25}, "sigma of .* must be 0.5, got 0.25"),
        ({"n": 10_000}, "n of .* must be 100000, got 10000"),
        ({"n0": 10}, "n0 of .* must be 100, got 10"),
        ({"alpha": 0.01}, "alpha of .* must be 0.001, got 0.01"),
    ],
)
def test_other_settings_are_refused(macer, change, line):
    with pytest.raises(Mistake, match=line):
        check_log(replace(macer, **change), 0.5, macer)


def test_radii_beyond_what_n_and_alpha_allow_are_refused(macer):
    larger = replace(macer, radius=macer.radius * 1.01)
    with pytest.raises(Mistake, match=r"must be at most 1\.9057, which sigma 0\.5, n and alpha "):
        check_log(larger, 0.5, macer)


def test_other_labels_are_refused(macer):
    other = replace(macer, label=(macer.label + 1) % 10)
    with pytest.raises(
        Mistake,
        match="must have the labels of CIFAR-10's test images, got others for 10,000 of 10,000",
    ):
        check_log(other, 0.5, macer)


def test_missing_images_are_refused(macer):
    kept = np.arange(len(macer.idx)) != 25
    names = ("idx", "label", "predict", "radius", "correct")
    less = replace(macer, **{name: getattr(macer, name)[kept] for name in names})
    with pytest.raises(
        Mistake,
        match="must have every 5th of the 10,000 test images, got none with idx 25; certify ci",
    ):
        check_log(less, 0.5, macer)


def test_training_images_are_refused(macer):
    with pytest.raises(
        Mistake, match=r"must be test images, got training images; .*without --held"
    ):
        check_log(replace(macer, split="train"), 0.5, macer)


def test_images_of_a_larger_data_set_are_refused(macer):
    with pytest.raises(Mistake, match="must be the 10,000 test images of CIFAR-10, got idx 10000;"):
        check_log(replace(macer, idx=macer.idx + 1), 0.5, macer)
