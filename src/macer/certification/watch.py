"""Watch one image being certified: the label once it is decided, and a radius that grows."""

import time
from collections.abc import Sequence

from macer.certification.anytime import sample_anytime
from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.table import rounded_down
from macer.smoothing.sampling import Sampler
from macer.system.progress import live_line


def watched(
    sampler: Sampler,
    name: str,
    classes: Sequence[str],
    *,
    n0: int,
    n: int,
    alpha: float,
    seconds: float | None,
) -> tuple[Certificate, KeyboardInterrupt | None]:
    """The certificate of the sampler's one image at the end, or so far and the interruption.

    An interruption before the first certificate is raised.
    """
    certificate: Certificate | None = None
    decided, started = False, time.monotonic()
    looks = sample_anytime(sampler, n0=n0, n=n, alpha=alpha, seconds=seconds)
    try:
        with live_line() as show:
            for [certificate] in looks:
                news = certificate.label != ABSTAIN and not decided
                decided |= news
                show(_line(name, classes, certificate, time.monotonic() - started), news)
    except KeyboardInterrupt as interruption:
        if certificate is None:
            raise
        return certificate, interruption
    assert certificate is not None  # a look is always finished
    return certificate, None


def _line(name: str, classes: Sequence[str], certificate: Certificate, seconds: float) -> str:
    answer = "no label yet"
    if certificate.label != ABSTAIN:
        radius = rounded_down(certificate.radius, 4)
        answer = f"{classes[certificate.label]}, radius {radius} so far"
    return f"{name}: {answer}, {certificate.drawn:,} samples, {seconds:.1f} s"
