"""Text from outside, made safe to print; numbers, times and shapes as text."""

import re
from collections.abc import Iterable, Sequence

NO_BREAK = "\N{NO-BREAK SPACE}"
_UNIT = "(?:d|h|min|s|ms|µs|kB|MB|GB|TB|KiB|MiB|GiB)"
# Spaces before an error or a mark, before a unit, within a time, and in n = 100 or σ .5. Markdown
# ends a bold number with *.
_INSIDE = re.compile(
    rf"(?<=\d) (?={_UNIT}\b)|(?<=[\d*]) (?=[±†])|(?<=±) (?=[\d.?])"
    rf"|(?:(?<=\d d)|(?<=\d h)|(?<=\d min)) (?=\d+ {_UNIT}\b)"
    r"|(?<=\w) (?== [\d.])|(?<= =) (?=[\d.])|(?<=σ) (?=[\d.])"
)


def one_line(text: str) -> str:
    """The text in one line, with each character that is not printable as a Python escape.

    A line break becomes \\n, an escape \\x1b, a character that reverses the direction of writing
    \\u202e. So no name can end a line, move a cursor or run backwards. A backslash stays itself.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def unbroken(text: str) -> str:
    """The text with no-break spaces inside its numbers, such as 0.572 ± 0.009 and 1 d 11 h."""
    return _INSIDE.sub(NO_BREAK, text)


def rate_text(rate: float) -> str:
    """A rate in whole numbers; below ten in two digits, so that a slow one is not 0."""
    return f"{rate:{',.0f' if rate >= 10 else '.2g'}}"


def counted(number: int, what: str) -> str:
    """A number of things, such as 1 step and 1,000 steps."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in the two largest units that it has, such as 12 min 30 s; below ten, in tenths."""
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller, below in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        large, small = divmod(round(whole / smaller), size // smaller)
        if large:
            return f"{large:,} {unit}" + (f" {small} {below}" if small else "")
    return f"{whole} s"


def shape_text(shape: Iterable[int]) -> str:
    """A shape as messages show it, such as 3×32×32."""
    return "×".join(map(str, shape))


def inputs_text(shape: Sequence[int]) -> str:
    """Inputs as messages name them: images of three sizes, such as 3×32×32 images, or others."""
    text = shape_text(shape)
    return f"{text} images" if len(shape) == 3 else f"inputs of the shape {text}"
