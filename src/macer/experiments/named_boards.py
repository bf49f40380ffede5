"""The leaderboard with logs that a user names: where a model of one's own would stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from macer.certification.journal import read_journal
from macer.data.selection import Selection
from macer.experiments.other_bound import OTHER, by_bound
from macer.experiments.paper_logs import results_folder
from macer.reporting.board_check import BOUND, DATASET, WHAT_TO_CERTIFY, check_log
from macer.reporting.leaderboard import (
    COUNT,
    IMAGES,
    REFERENCE,
    SETTINGS,
    Board,
    Entry,
    ImageSet,
    Reading,
    boards,
    check_sigma,
    entries,
    sigmas,
)
from macer.reporting.log_table import read_logs
from macer.reporting.logs import CertificateLog, read_log, select
from macer.reporting.named_logs import Figures, MethodDifference, NamedLog, with_rows
from macer.reporting.scores import (
    average_certified_radius,
    certified_accuracy,
    paired_difference,
    standard_error,
)
from macer.reporting.tables import RADII
from macer.reporting.texts import setting, with_error
from macer.runs.names import JOURNAL, TABLE
from macer.runs.zoo import certificates_folder, shipped_certificates
from macer.system.errors import Mistake

Logs = Mapping[str, CertificateLog]  # by the method's key


@dataclass(frozen=True)
class _Given:
    """A log that was named."""

    path: Path
    log: CertificateLog
    sigma: float

    @property
    def place(self) -> Path:
        """The folder or file that it was read from."""
        return certificates_folder(self.path)

    @property
    def file(self) -> Path:
        """Its table."""
        return self.place / TABLE if self.place.is_dir() else self.place


def named_boards(
    paths: Sequence[Path], sigma: float | None, images: ImageSet | Literal["both"]
) -> tuple[list[Board], list[NamedLog]]:
    """The boards of the σ of some logs, with a row for each log, and what else is known of these.

    Args:
        sigma: of the logs; None: as they record it.
        images: a log that lacks some has no row among all, and is refused where these alone are
            asked for.
    """
    check_sigma(sigma)
    given = _given(paths, sigma)
    shipped = {level: _shipped(level) for level in {one.sigma for one in given}}
    for one in given:
        _check(one, shipped[one.sigma][REFERENCE], images)
    own = [(one, _by_the_boards_bound(one), _second_reading(one)) for one in given]
    found, named = [], []
    for board in (board for board in boards(sigma, images) if board.sigma in shipped):
        rows = [
            (
                _named(one, log, shipped[board.sigma], board.images),
                _figures(one, log, other, board.images),
            )
            for one, log, other in own
            if _stands(one, board)
        ]
        found.append(with_rows(board, rows))
        named += [log for log, _ in rows]
    return found, named


def _given(paths: Sequence[Path], sigma: float | None) -> list[_Given]:
    """The logs, each with the σ whose board it is for."""
    for path in paths:
        if paths.count(path) > 1:
            raise Mistake(f"logs must be named once each, got {path} {paths.count(path)} times")
    logs = zip(paths, read_logs(paths), strict=True)
    return [_Given(path, log, _sigma_of(log, sigma)) for path, log in logs]


def _sigma_of(log: CertificateLog, asked: float | None) -> float:
    """The σ of a log of the boards' data set, if there is a board of it."""
    if log.dataset not in (None, DATASET):
        raise Mistake(
            f"data set of {log.name} must be {DATASET}, got {log.dataset}; {WHAT_TO_CERTIFY}, "
            "or compare logs by macer report"
        )
    choice = ", ".join(f"{level:g}" for level in sigmas())
    if log.sigma is None and asked is None:
        raise Mistake(
            f"sigma must be given for {log.name}, which does not record it; add --sigma, one of "
            f"{choice}"
        )
    level = log.sigma if log.sigma is not None else asked
    if level not in sigmas():
        raise Mistake(
            f"sigma of {log.name} must be one of {choice}, got {setting(level)}; certify at one of "
            "these, or compare logs by macer report"
        )
    if asked not in (None, level):
        raise Mistake(
            f"sigma of {log.name} must be {asked:g}, got {level:g}; leave out --sigma, or certify "
            f"with --sigma {asked:g}"
        )
    return float(level)


def _check(one: _Given, reference: CertificateLog, images: ImageSet | Literal["both"]) -> None:
    """Refuse a log that cannot stand on the board of its σ."""
    log = one.log
    check_log(log, one.sigma, reference)
    if images == "all" and len(log.idx) < COUNT:
        raise Mistake(
            f"{log.name} must have all {COUNT:,} test images, got {len(log.idx):,}; certify "
            "without --skip, or leave out --images all"
        )
    if log.level == "chosen":
        raise Mistake(
            f"{log.name} must have certificates at level {SETTINGS['alpha']}, got {log.bound} at "
            f"{log.alpha}, chosen after the counts were drawn; name the run, or "
            f"{WHAT_TO_CERTIFY}"
        )
    if log.bound not in (None, BOUND, OTHER) or (log.bound == OTHER and not by_bound(one.file)):
        without = " without counts" if log.bound == OTHER else ""
        raise Mistake(
            f"bound of {log.name} must be {BOUND}, got {log.bound}{without}; {WHAT_TO_CERTIFY}"
        )


def _by_the_boards_bound(one: _Given) -> CertificateLog:
    """The log, or the certificates that its counts give by the bound of every row."""
    if one.log.bound in (None, BOUND):
        return one.log
    counted = by_bound(one.file, BOUND)
    assert counted
    return replace(counted, name=one.log.name)


def _second_reading(one: _Given) -> CertificateLog | None:
    """The same counts by the other bound; None without counts."""
    return by_bound(one.file) if one.log.bound else None


def _fixed(one: _Given) -> bool:
    """Whether the other bound too was fixed before the counts were drawn."""
    journal = one.place / JOURNAL
    if one.log.bound == OTHER:
        return True
    return journal.is_file() and read_journal(journal).header.fixed(OTHER, SETTINGS["alpha"])


def _stands(one: _Given, board: Board) -> bool:
    """Whether a log has the images of a board, and its σ."""
    has_images = board.images != "all" or len(one.log.idx) == COUNT
    return has_images and one.sigma == board.sigma


def _shipped(sigma: float) -> dict[str, CertificateLog]:
    """The logs that come with macer, of methods at σ."""
    folder = results_folder()
    if folder is None:
        raise Mistake(
            "logs cannot be compared: the published ones are missing; install macer again"
        )
    return {
        entry.key: read_log(_place(entry, sigma, folder / "published"))
        for entry in entries()
        if entry.shipped and sigma in entry.sigmas
    }


def _place(entry: Entry, sigma: float, folder: Path) -> Path:
    name = entry.log_at(sigma)
    return shipped_certificates(name) if entry.ours else folder / name


def _named(one: _Given, log: CertificateLog, shipped: Logs, images: ImageSet) -> NamedLog:
    chosen, count = Selection(skip=IMAGES[images]), COUNT // IMAGES[images]
    others = {key: select(other, chosen) for key, other in shipped.items()}
    return NamedLog(
        method=f"log:{log.name}",
        sigma=one.sigma,
        images=images,
        path=str(one.path),
        bound=one.log.bound,
        unrecorded=_unrecorded(one.log),
        differences=tuple(
            MethodDifference(key, paired_difference(select(log, chosen), other))
            for key, other in others.items()
            if len(other.idx) == count
        ),
    )


def _figures(
    one: _Given, log: CertificateLog, other: CertificateLog | None, images: ImageSet
) -> Figures:
    """The scores over these images; a second bound that was fixed too stands in the note."""
    chosen = Selection(skip=IMAGES[images])
    shown, fixed = select(log, chosen), _fixed(one)
    reading = None if other is None else _reading(select(other, chosen))
    return Figures(
        name=log.name,
        acr=average_certified_radius(shown),
        standard_error=standard_error(shown),
        accuracies=tuple(certified_accuracy(shown, RADII).tolist()),
        runner_up=None if fixed else reading,
        network=log.network or "—",
        note=_note(one, reading if fixed else None),
    )


def _reading(log: CertificateLog) -> Reading:
    return Reading(average_certified_radius(log), standard_error(log))


def _note(one: _Given, fixed: Reading | None) -> str:
    """By which bound the log was certified, and what it does not record."""
    said = f"certified by {one.log.bound}" if one.log.bound else f"taken to be by {BOUND}"
    parts = [
        said if one.log.bound in (None, BOUND) else f"{said}; the row is its counts by {BOUND}"
    ]
    if fixed:
        acr = with_error(fixed.acr, fixed.standard_error)
        parts.append(f"by {OTHER}, fixed before the counts were drawn, its ACR is {acr}")
    if unrecorded := _unrecorded(one.log):
        parts.append(f"its log does not record {', '.join(unrecorded)}")
    return "; ".join(parts) + "."


def _unrecorded(log: CertificateLog) -> tuple[str, ...]:
    return tuple(name for name in ("sigma", *SETTINGS, "bound") if getattr(log, name) is None)
