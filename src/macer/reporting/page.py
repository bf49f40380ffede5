"""One self-contained HTML page about certificates: opens offline, asks nothing of the network."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from macer.data.selection import Selection
from macer.data.value_range import IMAGE_RANGE
from macer.reporting.classes import class_text
from macer.reporting.clauses import CLAUSES
from macer.reporting.curves import conditions, draw, subject
from macer.reporting.evidence import LIMITS, Source, claim, commands, hashes, settings, versions
from macer.reporting.figures import SVG
from macer.reporting.html_file import check_html, write_html
from macer.reporting.intervals import ClassScore, interval_text
from macer.reporting.logs import CertificateLog
from macer.reporting.pictures import PictureRow
from macer.reporting.provenance import Provenance, date_of
from macer.reporting.scores import Difference, curve, outcomes
from macer.reporting.tables import ScoreRow, acr_text, cells, images_of_log, tabulate
from macer.reporting.texts import (
    accuracy_texts,
    count_text,
    images_text,
    inputs_text,
    radius_text,
    setting,
    signed_with_error,
    thousands,
)
from macer.reporting.verdict import class_verdicts, length_text, share_text, verdicts
from macer.smoothing.confidence import Floats
from macer.system.text import one_line

# A colour that occurs nowhere else in a drawing: the page's text colour replaces it.
PLACEHOLDER = "#010203"

# Settings in words.
LABELS = {
    "sigma": "σ, standard deviation of the noise",
    "n0": "n0, samples that choose the class",
    "n": "n, samples that bound its share",
    "alpha": "α, of each certificate",
    "family": "images that share a level",
    "bound": "bound of the share",
    "beta": "β, of soft classifiers",
    "seed": "seed of the noise",
    "precision": "arithmetic of the network",
    "device": "processor",
    "row_by_row": "one noisy image at a time",
    "score": "wrong images not estimated",
}

MOST_CLASSES = 50  # in a table of classes; JSON has all


class PageOptions(NamedTuple):
    """What a page shows beside the scores of its logs."""

    images: Selection = Selection()
    radius: float | None = None  # of the verdicts; σ by default
    runs: Sequence[Source] = ()  # of the logs, as far as they have journals
    pictures: Sequence[PictureRow] = ()
    attacked: bool = False  # whether the last picture of each row is an attack


def write_page(
    logs: Sequence[CertificateLog],
    path: Path,
    *,
    title: str,
    models: Sequence[Provenance] = (),
    options: PageOptions = PageOptions(),  # noqa: B008  a tuple
) -> None:
    """Write the page: verdict, claim, curves, tables, outcomes, limits, settings, provenance.

    Args:
        models: of the logs, as far as they are known.
    """
    check_html(path)
    table = tabulate(logs)
    # Differences have a table of their own further down the page.
    header, rows = cells(table, compared=False)
    judged = verdicts(logs, options.radius)
    values = {
        "title": title,
        "models": models,
        "names": ", ".join(log.name for log in logs),
        "conditions": " · ".join(filter(None, [subject(logs), conditions(logs)])).split(" · "),
        "headlines": [_headline(row) for row in table.rows],
        "header": header,
        "rows": rows,
        "acr_column": 2 + len(table.radii),
        "intervals": [_interval_cells(row, len(header)) for row in table.rows],
        "classes": [
            _class_table(row, log, judged[0].radius)
            for row, log in zip(table.rows, logs, strict=True)
        ],
        "verdicts": judged,
        "claim": claim(logs),
        "of_images": all(log.value_range == IMAGE_RANGE for log in logs),
        "inputs": inputs_text(*(log.value_range for log in logs)),
        "limits": LIMITS,
        "clauses": CLAUSES,
        "pictures": options.pictures,
        "attacked": options.attacked,
        "runs": [_run_facts(run, options) for run in options.runs],
        "radii": list(map(radius_text, table.radii)),
        "table": table,
        "differences": [
            _comparison(row.name, row.difference) for row in table.rows if row.difference
        ],
        "outcomes": list(zip(table.rows, map(outcomes, logs), strict=True)),
        "drawing": drawing(logs),
    }
    filters: dict[str, Callable[..., Any]] = {
        **{"setting": setting, "thousands": thousands, "count": count_text},
        **{"share": share_text, "length_text": length_text},
    }
    write_html(path, "page.html.j2", values, filters=filters, finalize=_printable)


def _printable(value: object) -> object:
    """A text without control characters; our own markup, the drawing, stays as it is."""
    return one_line(value) if type(value) is str else value


def drawing(logs: Sequence[CertificateLog]) -> str:
    """The radius–accuracy curves as SVG to stand inside a page, in the page's text colour."""
    from matplotlib import rc_context

    curves = [curve(log) for log in logs]
    width = max(float(x[-1]) for x, _ in curves)
    simple = [simplify(x, y, width / 1500, 1 / 1500) for x, y in curves]
    picture = io.StringIO()
    with rc_context({**SVG, "path.simplify": False}):
        figure = draw(logs, simple, colour=PLACEHOLDER, titled=False)
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
    return _inline(picture.getvalue())


def simplify(x: Floats, y: Floats, width: float, height: float) -> tuple[Floats, Floats]:
    """Remove knots of a falling step curve, y[i] on (x[i−1], x[i]], too close to tell apart.

    Neighbouring steps become one step while together they are narrower than width or differ by
    less than height. It is as high as the lowest of them, so that no accuracy is overstated.
    """
    kept = [0]
    for i in range(1, len(x)):
        start = kept[-1]
        narrow = i + 1 < len(x) and x[i + 1] - x[start] <= width
        flat = i + 1 < len(x) and y[start + 1] - y[i + 1] <= height
        # The last two knots draw the fall to 0 at the largest radius.
        if i >= len(x) - 2 or not (narrow or flat):
            kept.append(i)
    return x[np.array(kept)], y[np.array(kept)]


def _inline(svg: str) -> str:
    """An SVG file as a part of a page: no prologue or metadata, ids of its own, short numbers."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', r"\1curves-", svg)
    svg = re.sub(r'(?<= d=")[^"]+', lambda data: _shortened(data[0]), svg)
    svg = svg.replace(PLACEHOLDER, "currentColor")
    size = r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>'
    label = "Radius–accuracy curves; the table below holds the same figures."
    return re.sub(size, rf'<svg \1 xmlns:xlink="{XLINK}" role="img" aria-label="{label}">', svg)


def _shortened(data: str) -> str:
    """A path's data with two decimals, a hundredth of a point, and without needless spaces."""
    data = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", data)
    return re.sub(r"\s*([A-Z])\s*", r"\1", data).strip()


# The name of a namespace, not an address to fetch.
XLINK = "http://www.w3.org/1999/xlink"


def _headline(row: ScoreRow) -> dict[str, str]:
    acr, error = acr_text(row).split(" ", maxsplit=1)
    return {
        "name": row.name,
        "acr": acr,
        "error": error,
        "interval": interval_text(row.acr_interval),
        "images": images_text(row.images, row.which, row.asked),
        "sigma": setting(row.sigma),
        "n": thousands(row.n),
        "alpha": setting(row.alpha),
    }


def _interval_cells(row: ScoreRow, columns: int) -> list[str]:
    """The intervals below a row's accuracies and ACR; nothing below its other cells."""
    known = [interval_text(interval) for interval in (*row.accuracy_intervals, row.acr_interval)]
    return ["", "", *known, *[""] * (columns - 2 - len(known))]


def _run_facts(run: Source, options: PageOptions) -> dict[str, Any]:
    """What a run's journal and manifest say: settings, hashes, versions, and how to repeat it."""
    header, made = run.header, versions(run)
    with_what = {f"{act} with": _joined(made[act]) for act in ("certified", "trained")}
    level, family = header.alpha, header.family
    date = date_of(run.folder)
    dated = {"trained on": f"{date} (UTC)"} if date else {}
    subject = {
        "network": header.model,
        "data set": f"{header.dataset}, {header.split} images",
        "images": images_of_log(run.log),
    }
    known = {LABELS.get(name, name): value for name, value in settings(header).items()}
    return {
        "name": run.log.name,
        "settings": {**subject, **known, **with_what, **dated},
        "left_out": len(run.contents.records) - len(run.log.idx),
        "hashes": hashes(run),
        "commands": commands(run, options.images, options.radius),
        "family": family,
        "together": None if family is None else f"{level * family:.6g}",
    }


def _joined(values: dict[str, Any] | None) -> str:
    return ", ".join(f"{k} {v}" for k, v in (values or {}).items() if v is not None) or "?"


def _class_table(row: ScoreRow, log: CertificateLog, radius: float) -> dict[str, Any]:
    """The classes of a log; of very many, those with the lowest ACRs."""
    judged = {verdict.label: verdict for verdict in class_verdicts(log, radius)}
    shown = row.classes
    if len(shown) > MOST_CLASSES:
        shown = tuple(sorted(shown, key=lambda score: score.acr)[:MOST_CLASSES])
    rows = [
        {
            "name": _class_name(score),
            "images": f"{score.images:,}",
            "accuracies": list(
                zip(
                    accuracy_texts(score.accuracies),
                    map(interval_text, score.accuracy_intervals),
                    strict=True,
                )
            ),
            "acr": f"{score.acr:.3f}",
            "lower": judged[score.label].lower,
            "given_up": judged[score.label].given_up,
        }
        for score in shown
    ]
    lost = [_class_name(score) for score in row.classes if judged[score.label].given_up]
    absent = _without_images(log)
    return {
        "name": row.name, "rows": rows, "classes": len(row.classes), "given_up": lost,
        "absent": absent[:MOST_CLASSES], "others_absent": len(absent[MOST_CLASSES:]),
    }  # fmt: skip


def _without_images(log: CertificateLog) -> list[str]:
    """The classes that the model knows and no counted image has."""
    absent = sorted(set(range(log.classes or 0)) - set(log.label.tolist()))
    return [class_text(label, log.class_names) for label in absent]


def _class_name(score: ClassScore) -> str:
    """A class's number, and its name where that says more."""
    label = f"{score.label}"
    return label if score.name in (None, label) else f"{label} {score.name}"


def _comparison(name: str, difference: Difference) -> dict[str, str]:
    gain, error, images = difference
    return {
        "name": name,
        "difference": signed_with_error(gain, error),
        "images": f"{images:,}",
        "errors": f"{abs(gain) / error:.1f}" if error > 0 else "—",
    }
