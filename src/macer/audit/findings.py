"""The results of an attack on certificates: counts, a summary, and the verdict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from macer.audit.falsify import Search
from macer.audit.judge import LEVEL, Trial
from macer.certification.journal import Contents
from macer.system.errors import AuditFailed


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The results of an attack, as numbers of images."""

    images: int
    first: int
    last: int
    flipped_inside: int  # the label is confirmed to be another class inside the radius
    flipped_beyond: int
    violated: int  # the certificate's bound is confirmed to be false
    closest: Trial  # the trial with the lowest margin
    alpha: float
    looked_at: int  # images in the journal up to the last
    level: float = LEVEL


def findings(trials: Sequence[Trial], contents: Contents) -> Findings:
    """Count the results of the trials."""
    images = sorted({trial.idx for trial in trials})
    flips = {trial.idx for trial in trials if trial.flipped}
    inside = {trial.idx for trial in trials if trial.flipped and trial.inside}
    return Findings(
        images=len(images),
        first=images[0],
        last=images[-1],
        flipped_inside=len(inside),
        flipped_beyond=len(flips - inside),
        violated=len({trial.idx for trial in trials if trial.violated}),
        closest=min(trials, key=lambda trial: trial.p_a_upper - trial.demanded),
        alpha=contents.header.alpha,
        looked_at=sum(idx <= images[-1] for idx in contents.records),
    )


def summary(
    findings: Findings, search: Search, name: Callable[[int], str] = "image {}".format
) -> list[str]:
    """The results of the attack in five lines.

    Args:
        name: gives an image's name, see `Split.image`.
    """
    closest = findings.closest
    return [
        f"attacked {findings.images} certified images, {findings.first}…{findings.last}, within "
        f"{search.scale:g} of their radii: {search.restarts} restarts, {search.steps} steps, "
        f"m = {search.m}",
        f"label confirmed to be another: {findings.flipped_inside} inside the radius, "
        f"{findings.flipped_beyond} beyond it, where nothing is certified",
        f"p_A(x′) confirmed to be below Φ(Φ⁻¹(p_A) − ‖δ‖/σ): {findings.violated}",
        f"lowest margin {closest.p_a_upper - closest.demanded:+.4f}: {name(closest.idx)}, at "
        f"distance {closest.distance:.4f}, has p_A(x′) ≤ {closest.p_a_upper:.4f}, "
        f"its certificate demands {closest.demanded:.4f}",
        f"each confirmed by n = {search.n} at level {findings.level:g}; at α = {findings.alpha:g}, "
        f"up to {findings.alpha * findings.looked_at:g} false certificates are expected in the "
        f"{findings.looked_at} images up to {findings.last}",
    ]


def check(
    trials: Sequence[Trial], contents: Contents, name: Callable[[int], str] = "image {}".format
) -> None:
    """Raise if a certificate is falsified."""
    if not (falsified := [trial for trial in trials if trial.falsifies]):
        return
    first = falsified[0]
    reason = f"the label is not class {first.label}"
    if first.violated:
        reason = (
            f"class {first.label} has at most {first.p_a_upper:.4f}, "
            f"its certificate demands {first.demanded:.4f}"
        )
    false, images = (len({trial.idx for trial in group}) for group in (falsified, trials))
    raise AuditFailed(
        f"{false} of {images} certificates false, α is {contents.header.alpha:g} for each; "
        f"{name(first.idx)}, at distance {first.distance:.4f} of radius {first.radius:.4f}: "
        f"{reason}"
    )
