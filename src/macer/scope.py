"""Which images a journal was asked for, as ranges of their numbers.

A range (start, stop, step) stands for the numbers of Python's range. A journal states them before
it has the first certificate, so that whoever reads it can tell which certificates are missing.
"""

from collections.abc import Iterable, Sequence

from macer.mistake import Mistake

Range = tuple[int, int, int]
Scope = tuple[Range, ...]

LARGEST_NUMBER = 1 << 40
MOST_IMAGES = 1 << 24  # more than any data set of images; a forged scope must not fill the memory


def scope_of(indices: Iterable[int]) -> Scope:
    """The ranges that hold these numbers and no others, each as long as it can be."""
    numbers = sorted(set(indices))
    ranges: list[Range] = []
    while numbers:
        length = _length_of_first_range(numbers)
        step = numbers[1] - numbers[0] if length > 1 else 1
        ranges.append((numbers[0], numbers[length - 1] + 1, step))
        numbers = numbers[length:]
    return tuple(ranges)


def _length_of_first_range(numbers: Sequence[int]) -> int:
    """How many of the ascending numbers, from the first on, have one distance."""
    if len(numbers) < 3:
        return len(numbers)
    step = numbers[1] - numbers[0]
    for i in range(2, len(numbers)):
        if numbers[i] - numbers[i - 1] != step:
            return i
    return len(numbers)


def images_of(scope: Scope) -> set[int]:
    """The numbers that the ranges hold."""
    return {i for bounds in scope for i in range(*bounds)}


def describe(scope: Scope) -> str:
    """The ranges in words: 0…179, or 0…9995 every 5th."""
    return ", ".join(map(_words, scope)) or "none"


def _words(bounds: Range) -> str:
    numbers = range(*bounds)
    if len(numbers) == 1:
        return f"{numbers[0]}"
    every = "" if numbers.step == 1 else f" in steps of {numbers.step}"
    return f"{numbers[0]}…{numbers[-1]}{every}"


def read_scope(value: object) -> Scope:
    """The scope that a journal's line holds; anything else is a Mistake."""
    if not isinstance(value, list):
        raise Mistake(f"images must be a list of ranges, got {str(value)[:40]}")
    scope = tuple(map(_range, value))
    if sum(len(range(*bounds)) for bounds in scope) > MOST_IMAGES:
        raise Mistake(f"images must be at most {MOST_IMAGES:,}, got more")
    return scope


def _range(value: object) -> Range:
    match value:
        case [int(start), int(stop), int(step)] if (
            0 <= start < stop <= LARGEST_NUMBER and 1 <= step <= LARGEST_NUMBER
        ):
            return start, stop, step
    raise Mistake(f"images must be ranges [start, stop, step], got {str(value)[:40]}")
