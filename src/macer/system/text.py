"""Text from outside, made safe to print."""

from collections.abc import Iterable


def one_line(text: str) -> str:
    """The text in one line, with each character that is not printable as a Python escape.

    A line break becomes \\n, an escape \\x1b, a character that reverses the direction of writing
    \\u202e. So no name can end a line, move a cursor or run backwards. A backslash stays itself.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shape_text(shape: Iterable[int]) -> str:
    """A shape as messages show it, such as 3×32×32."""
    return "×".join(map(str, shape))
