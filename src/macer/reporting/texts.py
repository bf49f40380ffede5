"""Figures and settings as people read them."""

import math
from collections.abc import Iterable

from macer.data.value_range import IMAGE_RANGE, ValueRange


def images_text(count: int, which: str, asked: int | None) -> str:
    """Which images, and how many."""
    if f"{count:,} images within" in which:
        return which.replace(f"{count:,} images", f"{count_text(count, asked)} images")
    return f"{which} ({count_text(count, asked)})"


def with_noun(which: str) -> str:
    """The text of `images_text` with the word images, which it has itself where images lack."""
    return which if " images within " in which else f"images {which}"


def count_text(count: int, asked: int | None) -> str:
    """How many images, and of how many if more were to be certified."""
    return f"{count:,}" if asked in (None, count) else f"{count:,} of {asked:,}"


def setting(value: float | str | None) -> str:
    """A setting as text; ? where the log does not have it."""
    if value is None:
        return "?"
    return value if isinstance(value, str) else f"{value:g}"


def thousands(value: int | None) -> str:
    """A whole number in groups of three digits; ? where the log does not have it."""
    return "?" if value is None else f"{value:,}"


def inputs_text(*ranges: ValueRange) -> str:
    """What radii are distances between, of certificates of inputs with these ranges of values."""
    if len(set(ranges)) > 1:
        return "inputs in the units of each data set"
    if ranges[0] is None:
        return "inputs in the units of the data set"
    low, high = ranges[0]
    kind = "images" if ranges[0] == IMAGE_RANGE else "inputs"
    return f"{kind} with values in [{low:g}, {high:g}]"


def with_error(value: float, error: float) -> str:
    """A value with its standard error, three decimals each."""
    text = f"{value:.3f}".replace("-", "−")
    return f"{text} ± {'?' if math.isnan(error) else f'{error:.3f}'}"


def accuracy_texts(accuracies: Iterable[float]) -> list[str]:
    """Accuracies in three decimals; a plain 0: no image at all."""
    return [f"{accuracy:.3f}" if accuracy else "0" for accuracy in accuracies]


def signed_with_error(value: float, error: float) -> str:
    """A difference with its sign and its standard error."""
    return with_error(value, error) if value < 0 else f"+{with_error(value, error)}"


def radius_text(r: float) -> str:
    """A radius as a column's header: two decimals, or more if it has more."""
    return f"{r:.2f}" if round(r, 2) == r else f"{r:g}"
