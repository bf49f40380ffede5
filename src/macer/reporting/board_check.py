"""Which log can stand on a board of the leaderboard: its images, labels, settings and radii."""

import numpy as np

from macer.reporting.intervals import PRINTED, radius_limit
from macer.reporting.leaderboard import COUNT, IMAGES, SETTINGS
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import paired_difference
from macer.system.errors import Mistake


def check_log(log: CertificateLog, sigma: float, reference: CertificateLog) -> None:
    """Refuse a log that cannot stand on a board: its images, labels, settings or radii."""
    every = max(IMAGES.values())
    missing = np.setdiff1d(np.arange(0, COUNT, every), log.idx)
    if len(missing):
        raise Mistake(
            f"{log.name} must have every {every}th of the {COUNT:,} test images, got none with "
            f"idx {missing[0]}; certify with --skip {every} or all"
        )
    paired_difference(log, reference)  # refuses other labels
    for name, value in {"sigma": sigma, **SETTINGS}.items():
        if getattr(log, name) not in (None, value):
            raise Mistake(f"{name} of {log.name} must be {value}, got {getattr(log, name)}")
    ceiling = radius_limit(sigma, SETTINGS["n"], SETTINGS["alpha"])
    if (largest := float(log.radius.max())) > ceiling * PRINTED:
        raise Mistake(
            f"radii of {log.name} must be at most {ceiling:.4f}, which sigma {sigma:g}, n and "
            f"alpha allow, got {largest}"
        )
