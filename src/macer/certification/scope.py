"""Which images a journal was asked for, as ranges of their numbers.

A range (start, stop, step) stands for the numbers of Python's range. A journal states its ranges
before it has the first certificate, so that a reader can tell which certificates are missing.
"""

from collections.abc import Iterable, Sequence

from macer.system.errors import Mistake

ImageRange = tuple[int, int, int]
Scope = tuple[ImageRange, ...]

LARGEST_NUMBER = 1 << 40
MOST_IMAGES = 1 << 24  # more than any data set of images; a forged scope must not fill the memory


def scope_of(indices: Iterable[int]) -> Scope:
    """The ranges that hold these numbers and no others, each as long as it can be."""
    numbers, begin = sorted(set(indices)), 0
    ranges: list[ImageRange] = []
    while begin < len(numbers):
        end = _end_of_range(numbers, begin)
        step = numbers[begin + 1] - numbers[begin] if end - begin > 1 else 1
        ranges.append((numbers[begin], numbers[end - 1] + 1, step))
        begin = end
    return tuple(ranges)


def _end_of_range(numbers: Sequence[int], begin: int) -> int:
    """The place after the longest run of equal distances that starts at `begin`."""
    end = begin + 2
    while (
        end < len(numbers)
        and numbers[end] - numbers[end - 1] == numbers[end - 1] - numbers[end - 2]
    ):
        end += 1
    return min(end, len(numbers))


def images_of(scope: Scope) -> set[int]:
    """The numbers that the ranges hold."""
    return {i for bounds in scope for i in range(*bounds)}


def describe(scope: Scope) -> str:
    """The ranges in words: 0…179, or 0…9995 in steps of 5."""
    return ", ".join(map(_words, scope)) or "none"


def _words(bounds: ImageRange) -> str:
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


def _range(value: object) -> ImageRange:
    match value:
        case [int(start), int(stop), int(step)] if (
            0 <= start < stop <= LARGEST_NUMBER and 1 <= step <= LARGEST_NUMBER
        ):
            return start, stop, step
    raise Mistake(f"images must be ranges [start, stop, step], got {str(value)[:40]}")
