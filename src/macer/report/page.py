"""One self-contained HTML page about certificates: opens offline, asks nothing of the network."""

import io
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from macer.errors import Mistake
from macer.report.curves import conditions, draw
from macer.report.logs import CertificateLog
from macer.report.scores import Difference, Floats, curve, outcomes
from macer.report.tables import (
    Row,
    cells,
    count_text,
    images_text,
    setting,
    tabulate,
    thousands,
    with_error,
)
from macer.system.files import write_file
from macer.system.text import one_line

# A colour that occurs nowhere else in a drawing: the page's own text colour takes its place.
INK = "#010203"


def write_page(
    logs: Sequence[CertificateLog],
    path: Path,
    *,
    title: str,
    details: Mapping[str, str] | None = None,
) -> None:
    """Write the page: ACRs, curves, table, comparisons, outcomes, settings, and how to read them.

    Args:
        details: further lines of the settings, such as the recipe or the hash of the weights.
    """
    from jinja2 import Environment, StrictUndefined

    if path.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"path of a page must end in .html, got {str(path)!r}")
    table = tabulate(logs)
    source = resources.files("macer.report").joinpath("page.html.j2").read_text("utf-8")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters.update(setting=setting, thousands=thousands, count=count_text)
    # Differences have a table of their own further down the page.
    header, rows = cells(table, compared=False)
    text = environment.from_string(source).render(
        title=title,
        details=dict(details or {}),
        conditions=conditions(logs),
        headlines=[_headline(row) for row in table.rows],
        header=header,
        rows=rows,
        acr_column=2 + len(table.radii),
        table=table,
        differences=[_comparison(row.name, row.difference) for row in table.rows if row.difference],
        outcomes=list(zip(table.rows, map(outcomes, logs), strict=True)),
        drawing=drawing(logs),
    )
    write_file(path, text.encode())


def _harmless(value: object) -> object:
    """What the page says, without control characters; markup of ours, the drawing, stays."""
    return one_line(value) if type(value) is str else value


def drawing(logs: Sequence[CertificateLog]) -> str:
    """The radius–accuracy curves as SVG to stand inside a page, in the page's text colour."""
    from matplotlib import rc_context

    curves = [curve(log) for log in logs]
    width = max(float(x[-1]) for x, _ in curves)
    simple = [simplify(x, y, width / 1500, 1 / 1500) for x, y in curves]
    picture = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "macer", "path.simplify": False}):
        figure = draw(logs, simple, ink=INK, titled=False)
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
    return _inline(picture.getvalue())


def simplify(x: Floats, y: Floats, width: float, height: float) -> tuple[Floats, Floats]:
    """Fewer knots of a falling step curve (y[i] on (x[i−1], x[i]]), nowhere above the given one.

    Neighbouring steps become one, as high as the lowest of them, while together they are narrower
    than width or differ by less than height: too little to see, and never in the model's favour.
    """
    kept = [0]
    for i in range(1, len(x)):
        start = kept[-1]
        narrow = i + 1 < len(x) and x[i + 1] - x[start] <= width
        flat = i + 1 < len(x) and y[start + 1] - y[i + 1] <= height
        # The last two knots draw the fall to zero at the largest radius.
        if i >= len(x) - 2 or not (narrow or flat):
            kept.append(i)
    return x[np.array(kept)], y[np.array(kept)]


def _inline(svg: str) -> str:
    """An SVG file as a part of a page: no prologue, no metadata, own ids, short coordinates."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', r"\1curves-", svg)
    svg = re.sub(r'(?<= d=")[^"]+', lambda data: _short(data[0]), svg)
    svg = svg.replace(INK, "currentColor")
    size = r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>'
    label = "Radius–accuracy curves; the table below holds the same figures."
    return re.sub(size, rf'<svg \1 xmlns:xlink="{XLINK}" role="img" aria-label="{label}">', svg)


def _short(data: str) -> str:
    """A path's data with two decimals, a hundredth of a point, and without spare spaces."""
    data = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", data)
    return re.sub(r"\s*([A-Z])\s*", r"\1", data).strip()


# The name of a namespace, not an address to fetch.
XLINK = "http://www.w3.org/1999/xlink"


def _headline(row: Row) -> dict[str, str]:
    acr, error = with_error(row.acr, row.standard_error).split(" ", maxsplit=1)
    return {
        "name": row.name,
        "acr": acr,
        "error": error,
        "images": images_text(row.images, row.which, row.asked),
        "sigma": setting(row.sigma),
        "n": thousands(row.n),
        "alpha": setting(row.alpha),
    }


def _comparison(name: str, difference: Difference) -> dict[str, str]:
    gain, error, images = difference
    return {
        "name": name,
        "difference": ("+" if gain >= 0 else "") + with_error(gain, error),
        "images": f"{images:,}",
        "errors": f"{abs(gain) / error:.1f}" if error > 0 else "—",
    }
