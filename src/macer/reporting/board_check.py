"""Which log can stand on a board of the leaderboard: its images, labels, settings and radii."""

import numpy as np

from macer.reporting.intervals import PRINTED, radius_limit
from macer.reporting.leaderboard import COUNT, IMAGES, SETTINGS
from macer.reporting.logs import CertificateLog
from macer.system.errors import Mistake

BOUND = "clopper-pearson"  # of every row
DATASET = "cifar10"
_FLAGS = {"skip": max(IMAGES.values()), **SETTINGS, "bound": BOUND}
WHAT_TO_CERTIFY = f"certify {DATASET} with " + " ".join(
    f"--{name} {value}" for name, value in _FLAGS.items()
)


def check_log(log: CertificateLog, sigma: float, reference: CertificateLog) -> None:
    """Refuse a log that cannot stand on a board.

    Args:
        reference: a log of the board's data set, for the labels.
    """
    _check_images(log)
    _check_labels(log, reference)
    if log.sigma not in (None, sigma):
        raise Mistake(f"sigma of {log.name} must be {sigma}, got {log.sigma}; it has another board")
    for name, value in SETTINGS.items():
        if (own := getattr(log, name)) not in (None, value):
            raise Mistake(f"{name} of {log.name} must be {value}, got {own}; {WHAT_TO_CERTIFY}")
    ceiling = radius_limit(sigma, SETTINGS["n"], SETTINGS["alpha"])
    if (largest := float(log.radius.max())) > ceiling * PRINTED:
        raise Mistake(
            f"radii of {log.name} must be at most {ceiling:.4f}, which sigma {sigma:g}, n and "
            f"alpha allow, got {largest}; {WHAT_TO_CERTIFY}"
        )


def _check_images(log: CertificateLog) -> None:
    """Every 5th test image at least, and no other image than those of the test set."""
    every = max(IMAGES.values())
    if log.split == "train":
        raise Mistake(
            f"images of {log.name} must be test images, got training images; "
            f"{WHAT_TO_CERTIFY}, without --held-out"
        )
    if (last := int(log.idx.max())) >= COUNT:
        raise Mistake(
            f"images of {log.name} must be the {COUNT:,} test images of CIFAR-10, got idx {last}; "
            f"{WHAT_TO_CERTIFY}"
        )
    missing = np.setdiff1d(np.arange(0, COUNT, every), log.idx)
    if len(missing):
        raise Mistake(
            f"{log.name} must have every {every}th of the {COUNT:,} test images, got none with "
            f"idx {missing[0]}; {WHAT_TO_CERTIFY}"
        )


def _check_labels(log: CertificateLog, reference: CertificateLog) -> None:
    common, in_log, in_reference = np.intersect1d(log.idx, reference.idx, return_indices=True)
    others = common[log.label[in_log] != reference.label[in_reference]]
    if len(others):
        raise Mistake(
            f"{log.name} must have the labels of CIFAR-10's test images, got others for "
            f"{len(others):,} of {len(common):,} images, first idx {others[0]}; "
            f"{WHAT_TO_CERTIFY}"
        )
