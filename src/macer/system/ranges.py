"""The range of a setting, written at its type: `sigma: Positive`."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from macer.system.typed import wrong

LARGEST = 1e30  # float32 ends at 3.4e38
BEYOND_INTEGERS = 2**63


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, each end in the range or not; NaN is in none."""

    low: float
    high: float = math.inf
    with_low: bool = True
    with_high: bool = False
    text: str = ""  # how the range is said; by default "at least LOW"
    most: int | None = None  # a limit that no sensible setting comes near

    def holds(self, value: float) -> bool:
        """Whether the value is in the range."""
        above = self.low <= value if self.with_low else self.low < value
        return above and (value <= self.high if self.with_high else value < self.high)


Positive = Annotated[float, Range(0, with_low=False, text="> 0")]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1, with_high=True, text="in [0, 1]")]
Decay = Annotated[float, Range(0, 1, text="in [0, 1)")]


def check_ranges(hints: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse the first value outside of the range at its annotation.

    Also refuse NaN, and numbers that float32 or int64 cannot hold.

    Args:
        hints: the annotations of the values, by name.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for rule in _ranges_in(hints[name]):
            if not rule.holds(value):
                raise wrong(name, rule.text or f"at least {rule.low:g}", value)
            if rule.most is not None and value > rule.most:
                raise wrong(name, f"at most {rule.most:,}", value)
        if isinstance(value, float) and value > LARGEST:
            raise wrong(name, f"at most {LARGEST:g}", value)
        if isinstance(value, float) and not value >= -LARGEST:  # NaN is no such number either
            raise wrong(name, f"at least {-LARGEST:g}", value)
        if isinstance(value, int) and value >= BEYOND_INTEGERS:
            raise wrong(name, "below 2⁶³", value)
        if isinstance(value, int) and value < -BEYOND_INTEGERS:
            raise wrong(name, "at least −2⁶³", value)


def _ranges_in(hint: Any) -> Iterator[Range]:
    """The ranges at a type, or at a part of a union such as `Positive | None`."""
    yield from (rule for rule in getattr(hint, "__metadata__", ()) if isinstance(rule, Range))
    if get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _ranges_in(part)
