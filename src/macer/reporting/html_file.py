"""A self-contained HTML file from a template of this package."""

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from macer.system.files import check_ending, write_file


def check_html(path: Path) -> None:
    """Refuse a path of another ending, so that nothing else is overwritten."""
    check_ending(path, "a page", ".html", ".htm")


def write_html(
    path: Path,
    template: str,
    values: Mapping[str, Any],
    *,
    filters: Mapping[str, Callable[..., Any]],
    finalize: Callable[[object], object] | None = None,
) -> None:
    """Fill a template, in which every name must have a value, and write the file.

    Args:
        template: the name of its file.
        finalize: what becomes of each value before it is printed.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=finalize,
    )  # fmt: skip
    environment.filters.update(filters)
    source = resources.files("macer.reporting").joinpath(template).read_text("utf-8")
    write_file(path, environment.from_string(source).render(values).encode())
