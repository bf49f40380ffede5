"""Text from outside, made fit to print, and shapes in words."""

from collections.abc import Sequence


def one_line(text: str) -> str:
    """Text from outside made harmless: what cannot be seen is shown as Python writes it.

    A line break becomes \\n, an escape \\x1b, a character that turns the direction of writing
    \\u202e: no name ends a line, moves a cursor or runs backwards. A backslash stays itself.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shape_text(shape: Sequence[int]) -> str:
    """A shape as it is read: 3×32×32."""
    return "×".join(map(str, shape))
