"""`macer gate`: does a run's certified accuracy suffice? Its exit code says so."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from macer.cli.printing import Result, print_line
from macer.recipes import Whole
from macer.runs.zoo import certificates_folder
from macer.system.errors import Mistake

if TYPE_CHECKING:
    from macer.data.selection import Selection
    from macer.reporting.gate import Build, Requirement
    from macer.reporting.logs import CertificateLog


def gate(
    run: Annotated[Path, Parameter(help="A run folder, a log file, or zoo:NAME.")],
    /,
    *,
    radius: float,
    at_least: float | None = None,
    worst_class: float | None = None,
    baseline: Path | None = None,
    not_worse_by: float | None = None,
    confidence: float = 0.95,
    alpha: float | None = None,
    start: Whole = 0,
    stop: Whole | None = None,
    skip: Whole = 1,
    partial: bool = False,
    junit: Path | None = None,
) -> Result:
    """Pass or fail a run by its certified accuracy: exit code 0 if it passes, 1 if it does not.

    A requirement passes if a lower confidence bound does, for the population that the images are
    a random sample of. A false pass has probability 1 − confidence at most, of all together.

    Parameters
    ----------
    radius
        ℓ₂ radius, for images in [0, 1].
    at_least
        Robust accuracy that the run must have at the radius.
    worst_class
        Robust accuracy that each class must have there.
    baseline
        Run, log file or zoo:NAME to compare with, over the images that both have.
    not_worse_by
        By how much certified accuracy may be below the baseline's, such as 0.01.
    confidence
        Probability that a requirement that is false of the population does not pass, at least.
    alpha
        Level of the certificates, for a log that does not record it.
    start
        First image to count.
    stop
        Image to stop before.
    skip
        Count only images whose number is a multiple of this.
    partial
        Judge the certificates that are there, even if some that were asked for are not.
    junit
        Write the result as JUnit XML too.
    """
    from macer.data.selection import Selection
    from macer.reporting import gate as gates
    from macer.reporting.junit import check_junit, write_junit

    _check(at_least, worst_class, baseline, not_worse_by, confidence)
    if junit:
        check_junit(junit)
    images = Selection(start, stop, skip)
    log = _read(run, images, partial=partial)
    build = gates.Build(log, radius, alpha=_alpha(log, alpha), level=1 - confidence)
    notes = gates.notes(build)
    requirements, classes = [], None
    if at_least is not None:
        requirements.append(gates.accuracy(build, at_least))
    if worst_class is not None:
        classes = gates.class_bounds(build)
        requirements.append(gates.worst_class(build, classes, worst_class))
    if baseline is not None and not_worse_by is not None:
        other = _read(baseline, images, partial=partial)
        _check_level(build, other, _alpha(other, alpha))
        requirements.append(gates.not_worse(build, other, not_worse_by))
        notes += gates.baseline_notes(log, other)
    if junit:
        write_junit(str(run), requirements, junit)
    passed = all(requirement.passed for requirement in requirements)
    _print(requirements, notes, passed)
    return {
        "run": run, "baseline": baseline, "radius": radius, "confidence": confidence,
        "alpha": build.alpha, "images": len(log.idx), "passed": passed,
        "requirements": requirements, "classes": classes, "notes": notes, "junit": junit,
    }  # fmt: skip


def _check(
    at_least: float | None,
    worst_class: float | None,
    baseline: Path | None,
    not_worse_by: float | None,
    confidence: float,
) -> None:
    """Refuse a gate that requires nothing, and numbers that are no accuracies."""
    if not 0 < confidence < 1:
        raise Mistake(f"confidence must be between 0 and 1, got {confidence:g}")
    accuracies = {
        "at_least": at_least,
        "worst_class": worst_class,
        "not_worse_by": not_worse_by,
    }
    for name, value in accuracies.items():
        if value is not None and not 0 <= value <= 1:
            raise Mistake(f"{name} must be from 0 to 1, got {value:g}")
    if (baseline is None) != (not_worse_by is None):
        missing, given = (
            ("not_worse_by", "baseline") if baseline is not None else ("baseline", "not_worse_by")
        )
        raise Mistake(f"{missing} must be given with {given}; add --{missing.replace('_', '-')}")
    if at_least is None and worst_class is None and baseline is None:
        raise Mistake(
            "gate must have a requirement, got none; add --at-least 0.6, --worst-class 0.3, or "
            "--baseline RUN --not-worse-by 0.01"
        )


def _read(path: Path, images: "Selection", *, partial: bool) -> "CertificateLog":
    """The log of a run, which must have all certificates that it was asked for, at their level."""
    import numpy as np

    from macer.reporting.logs import lacking, read_log, select

    folder = certificates_folder(path)
    log = read_log(folder, one_radius=True)
    behind = lacking(folder, log)
    if behind and not partial:
        raise Mistake(
            f"the table of {folder} must have the certificates of its journal, got {behind} fewer; "
            "continue `macer certify`, or judge those that are there with --partial"
        )
    if log.level == "chosen":
        raise Mistake(
            f"{path} must have certificates by a bound and a level that were fixed before its "
            f"counts were drawn, got {log.bound} at {log.alpha:g}, chosen afterwards; name the "
            "run, or certify by them"
        )
    chosen = select(log, images)
    asked = chosen.idx if chosen.asked is None else chosen.asked
    missing = np.setdiff1d(asked, chosen.idx)
    if len(missing) and not partial:
        raise Mistake(
            f"{path} must be finished, got {len(asked) - len(missing):,} of {len(asked):,} images, "
            f"not {missing[0]}; continue `macer certify`, or judge those that are there with "
            "--partial"
        )
    return chosen


def _alpha(log: "CertificateLog", given: float | None) -> float:
    """The level of a log's certificates: the log's own, or the given one where it has none."""
    if given is not None and not 0 < given < 1:
        raise Mistake(f"alpha must be between 0 and 1, got {given:g}")
    if log.alpha is None:
        if given is None:
            raise Mistake(
                f"alpha must be given, since {log.name} does not record it; add --alpha 0.001 if "
                "its certificates were made so"
            )
        return given
    if given not in (None, log.alpha):
        raise Mistake(f"alpha must be {log.alpha:g}, as {log.name} records it, got {given:g}")
    return log.alpha


def _check_level(build: "Build", baseline: "CertificateLog", alpha: float) -> None:
    """Certified accuracy depends on α, so that only equal levels are compared."""
    if build.alpha != alpha:
        raise Mistake(
            f"baseline must have the level of {build.log.name}, α = {build.alpha:g}, got {alpha:g} "
            f"of {baseline.name}; certify both at one level"
        )


def _print(requirements: "list[Requirement]", notes: list[str], passed: bool) -> None:
    for requirement in requirements:
        print_line(f"{'passes' if requirement.passed else 'fails'}: {requirement.line}")
    for note in notes:
        print_line(note)
    print_line("the gate passes" if passed else "the gate does not pass")
