"""What to know when reading a table of scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from macer.certification.header import two_sigmas
from macer.reporting.classes import class_text
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import given_up
from macer.reporting.texts import count_text, setting

if TYPE_CHECKING:
    from macer.reporting.tables import ScoreRow


def general_notes(rows: "Sequence[ScoreRow]") -> list[str]:
    """What ± and α mean here, and in what the rows differ."""
    notes = [f"{_errors_note(rows)} ± is one standard error over the images."]
    if any(row.difference for row in rows):
        counts = {row.difference.images for row in rows if row.difference}
        images = f"{counts.pop():,}" if len(counts) == 1 else "different numbers of"
        notes.append(f"Differences of ACR are paired, over {images} images common with the first.")
    return notes + _comparison_notes(rows)


def _comparison_notes(rows: "Sequence[ScoreRow]") -> list[str]:
    """In what the rows differ, and what some of them do not record."""
    values: dict[str, set[object]] = {
        "images": {row.which for row in rows},
        "n": {row.n for row in rows},
        "α": {row.alpha for row in rows},
        "bound": {row.bound for row in rows if row.bound is not None},
    }
    notes = []
    if differing := [symbol for symbol, known in values.items() if len(known - {None}) > 1]:
        notes.append(
            f"The rows differ in {' and '.join(differing)}, on which ACR depends: "
            "do not compare their ACRs directly."
        )
    if partly := [symbol for symbol, known in values.items() if None in known and len(known) == 2]:
        notes.append(
            f"Not every row records {' and '.join(partly)}, on which ACR depends: "
            "compare their ACRs only if you know that they are the same."
        )
    return notes


def limits(rows: "Sequence[ScoreRow]") -> list[str]:
    """What limits a row's certificates: unfinished, of ordinary noise, or a level chosen late."""
    limits = [
        f"{row.name} is not finished: {count_text(row.images, row.asked)} images are certified, "
        "and its figures are of these alone."
        for row in rows
        if row.asked not in (None, row.images)
    ]
    if ordinary := [row.name for row in rows if row.noise == "ordinary"]:
        whose = "" if len(ordinary) == len(rows) else f" ({', '.join(ordinary)})"
        limits.append(
            f"Ordinary noise{whose}: these certificates hold for real arithmetic, not for "
            "floating point."
        )
    limits += [
        f"† {row.name}: {row.bound} at {setting(row.alpha)} was chosen after the counts were drawn "
        f"(the journal's own: {row.rescored}): not certificates at level {setting(row.alpha)}."
        for row in rows
        if row.level == "chosen"
    ]
    return limits


def _errors_note(rows: "Sequence[ScoreRow]") -> str:
    cases = dict.fromkeys((row.alpha, row.images) for row in rows)
    expected = "; ".join(
        f"{alpha:g} · {images:,} = {alpha * images:g}"
        for alpha, images in cases
        if alpha is not None
    )
    unknown = "α is not recorded in every log" if expected else "α is not recorded here"
    if all(alpha is not None for alpha, _ in cases):
        unknown = ""
    figures = "; ".join(filter(None, [expected, unknown]))
    return f"α is per image: over m images at most αm false certificates are expected ({figures})."


def trained_note(log: CertificateLog) -> str:
    """A line on a model that was certified at another σ than its training's; empty for others."""
    if log.trained_at is None or log.sigma is None:
        return ""
    return f"{log.name} was {two_sigmas(log.trained_at, log.sigma)}."


def given_up_note(log: CertificateLog) -> str:
    """The classes that a model hardly ever gets right."""
    lost = [
        class_text(c.label, log.class_names, f"{c.correct} of {c.images:,} correct")
        for c in given_up(log)
    ]
    if not lost:
        return ""
    kind = "class" if len(lost) == 1 else "classes"
    return f"{log.name} gives up {kind} {', '.join(lost)}: its ACR may be the higher for it."
