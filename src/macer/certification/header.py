"""The header of a journal: all that its certificates depend on, checked when it is made or read.

A journal's checksums have no key: anyone who changes a header can compute them again. So every
entry is checked before anything is computed from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from macer.data.value_range import IMAGE_RANGE
from macer.recipes import MOST_VOTES, CertifyRecipe
from macer.system.errors import Mistake

# One image's outputs; None stands for a number that is not finite.
OutputRow = Sequence[float | None]
Outputs = Sequence[OutputRow]

# 2: every line has its number, and the images that were asked for are stated. 1 has neither.
FORMAT = 2

LARGEST_RADIUS = 1e6

_USUAL = ("split", "value_range")  # a new journal names others than test and images alone

# In the name of a model, before the σ that it was trained for, if it was certified at another.
TRAINED_AT = ", trained at σ = "


def two_sigmas(trained_at: str, sigma: float) -> str:
    """Both σ in words, for certificates at another σ than the training's."""
    return f"trained at σ = {trained_at} and certified at σ = {sigma:g}"


@dataclass(frozen=True, kw_only=True)
class Header:
    """All that the certificates of a journal depend on.

    The fields stand in the order in which a new journal has them. An entry that an older journal
    lacks has the value that held before the entry existed, see OLDER; `written` remembers which
    entries it has, and in which order.
    """

    format: int = FORMAT
    macer: str
    torch: str
    model: str  # the network's name, and the hash of its code where that is the user's
    weights_sha256: str
    dataset: str
    data_sha256: str
    split: Literal["test", "train"] = "test"
    sigma: float
    chunk: int  # noisy images that share one stream of noise
    rows: int  # noisy images that the network sees at once
    device: Literal["cpu", "cuda"]
    cpu: str | None  # its instruction set; None on a GPU and in older journals
    tf32: bool
    family: int | None  # how many images share the level α
    outputs: Outputs | None  # the network's, on the probe images; None only in older journals
    n0: int
    n: int
    alpha: float
    bound: str
    beta: float
    radius: float | None
    exact: bool
    row_by_row: bool
    seed: int
    score: bool
    precision: Literal["fp32", "bf16"]
    also: list[str] = field(default_factory=list)  # other bounds fixed beforehand, at the same α
    value_range: list[float] | None = field(default_factory=lambda: list(IMAGE_RANGE))  # of inputs
    written: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in self._names():
            holds, requirement = ENTRIES[name]
            value = getattr(self, name)
            if not holds(value):
                raise Mistake(f"{name} must be {requirement}, got {str(value)[:40]!r}")
        if self.exact and self.value_range != OLDER["value_range"]:
            raise Mistake(f"exact must be false with the value_range {self.value_range}, got True")

    def _names(self) -> list[str]:
        """The entries of the journal's first line; a new journal leaves out what is usual."""
        if not self.written:
            return [
                name for name in ENTRIES if name not in _USUAL or getattr(self, name) != OLDER[name]
            ]
        changed = [name for name, value in OLDER.items() if getattr(self, name) != value]
        return list(dict.fromkeys((*self.written, *changed)))

    @classmethod
    def from_json(cls, entries: object) -> "Header":
        """The header that a journal's first line holds; a Mistake names what is wrong with it."""
        if not isinstance(entries, dict):
            raise Mistake(f"it must be an object, got {str(entries)[:40]}")
        # A journal of today's format that lacks the outputs would be spared the checks by them.
        optional = {"also", *_USUAL} if entries.get("format", 1) != 1 else OLDER.keys()
        if missing := [name for name in ENTRIES if name not in {*entries, *optional}]:
            raise Mistake(f"it must have {missing[0]}")
        if unknown := sorted(entries.keys() - ENTRIES.keys()):
            raise Mistake(f"it must not have {unknown[0][:40]}, which this macer does not know")
        return cls(**{**OLDER, **entries}, written=tuple(entries))

    def to_json(self) -> dict[str, Any]:
        """The object of the journal's first line: one that was read is written as it was."""
        return {name: getattr(self, name) for name in self._names()}

    def fixed(self, bound: str, alpha: float) -> bool:
        """Whether this reading of the counts was fixed before the first of them was drawn."""
        return alpha == self.alpha and bound in (self.bound, *self.also)

    @property
    def recipe(self) -> CertifyRecipe:
        """The settings that the certificates were made with."""
        names = [setting.name for setting in fields(CertifyRecipe)]
        return CertifyRecipe(**{name: getattr(self, name) for name in names})


# Entries that headers of format 1 may lack, with what holds of their certificates. Those of test
# images lack the split in every format, those of images their value_range, and those of before
# there was `also` may lack that.
OLDER: Mapping[str, Any] = {
    "format": 1,
    "split": "test",
    "family": None,
    "row_by_row": False,
    "cpu": None,
    "outputs": None,
    "also": [],
    "value_range": list(IMAGE_RANGE),
}

Check = tuple[Callable[[Any], bool], str]  # what must hold of a value, and the same in words


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether a value is a whole number from low to high."""
    return type(value) is int and low <= value <= high


def is_number(value: object, low: float, high: float) -> bool:
    """Whether a value is a number between low and high, neither of them."""
    return isinstance(value, int | float) and type(value) is not bool and low < value < high


def _one_of(*names: str) -> Check:
    return lambda value: value in names, f"one of {', '.join(names)}"


def _or_null(check: Check, requirement: str) -> Check:
    return lambda value: value is None or check[0](value), f"{requirement}, or null"


def _is_row(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 1000
        and all(v is None or is_number(v, -1e300, 1e300) for v in value)
    )


_TEXT: Check = (lambda value: isinstance(value, str) and len(value) <= 10_000, "a text")
_FLAG: Check = (lambda value: type(value) is bool, "true or false")
_ABOVE_0: Check = (lambda value: is_number(value, 0, LARGEST_RADIUS), "a number > 0")
_AT_LEAST_0: Check = (lambda value: value == 0 or _ABOVE_0[0](value), "a number ≥ 0")
_SAMPLES: Check = (lambda value: is_whole(value, 1, MOST_VOTES), "a whole number ≥ 1")
_SHA256: Check = (
    lambda value: isinstance(value, str) and len(value) == 64 and value.isalnum(),
    "a SHA-256",
)
_OUTPUTS: Check = (
    lambda value: isinstance(value, list) and all(map(_is_row, value)) and len(value) <= 1000,
    "rows of numbers",
)

_BOUND: Check = _one_of(*get_args(get_type_hints(CertifyRecipe)["bound"]))
_BOUNDS: Check = (
    lambda value: (
        isinstance(value, list) and all(isinstance(v, str) and _BOUND[0](v) for v in value)
    ),
    "a list of bounds",
)

_RANGE: Check = (
    lambda value: (
        value is None
        or (
            isinstance(value, list)
            and len(value) == 2
            and all(is_number(number, -1e300, 1e300) for number in value)
            and value[0] < value[1]
        )
    ),
    "two numbers, the least and the largest value, or null",
)

# What must hold of each entry, in the order of a new journal.
ENTRIES: Mapping[str, Check] = {
    "format": (lambda value: is_whole(value, 1, FORMAT), f"1 to {FORMAT}; a newer macer wrote it"),
    "macer": _TEXT,
    "torch": _TEXT,
    "model": _TEXT,
    "weights_sha256": _SHA256,
    "dataset": _TEXT,
    "data_sha256": _SHA256,
    "split": _one_of("test", "train"),
    "sigma": _ABOVE_0,
    "chunk": _SAMPLES,
    "rows": (lambda value: is_whole(value, 1, 10**7), "a whole number ≥ 1"),
    "device": _one_of("cpu", "cuda"),
    "cpu": _or_null(_TEXT, "a text"),
    "tf32": _FLAG,
    "family": _or_null(_SAMPLES, "a number of images"),
    "outputs": _OUTPUTS,
    "n0": _SAMPLES,
    "n": _SAMPLES,
    "alpha": (lambda value: is_number(value, 0, 1), "between 0 and 1"),
    "bound": _BOUND,
    "beta": _ABOVE_0,
    "radius": _or_null(_AT_LEAST_0, "a number ≥ 0"),
    "exact": _FLAG,
    "row_by_row": _FLAG,
    "seed": (lambda value: is_whole(value, 0, 2**63 - 1), "in [0, 2⁶³)"),
    "score": _FLAG,
    "precision": _one_of("fp32", "bf16"),
    "also": _BOUNDS,
    "value_range": _RANGE,
}

# What two headers must have in common; what explains other differences comes first. The version
# and the format say how a journal was begun, and decide nothing about its certificates.
_BINDING = (
    "split",
    "family",
    "row_by_row",
    "cpu",
    *(name for name in ENTRIES if name not in ("macer", "format")),
)

# Rounding in a precision, on another machine, changes a row of outputs by less than this times
# the row's norm.
_ROUNDING = {"fp32": 1e-3, "bf16": 0.05}


def difference(a: Header, b: Header) -> tuple[str, Any, Any] | None:
    """The name of the first entry in which two headers differ, with both its values."""
    for name in _BINDING:
        if not _agree(name, a, b):
            if name == "outputs":  # many numbers
                return name, "those of the network that was certified", "others"
            return name, getattr(a, name), getattr(b, name)
    return None


def _agree(name: str, a: Header, b: Header) -> bool:
    if name == "cpu":  # older journals do not say which
        return a.cpu == b.cpu or None in (a.cpu, b.cpu)
    if name == "also":  # nothing may be said of b's certificates that was not fixed before them
        return set(a.also) <= set(b.also)
    if name == "outputs":
        return (
            a.outputs is None
            or b.outputs is None
            or outputs_agree(a.outputs, b.outputs, a.precision)
        )
    return bool(getattr(a, name) == getattr(b, name))


def outputs_agree(a: Outputs, b: Outputs, precision: str) -> bool:
    """Whether two networks' outputs on the same images differ by no more than rounding does."""
    same_form = [len(row) for row in a] == [len(row) for row in b]
    return same_form and all(
        _rows_agree(x, y, _ROUNDING[precision]) for x, y in zip(a, b, strict=True)
    )


def _rows_agree(a: OutputRow, b: OutputRow, tolerance: float) -> bool:
    if [x is None for x in a] != [y is None for y in b]:
        return False
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    norm = math.hypot(*(x for x, _ in pairs))
    return math.hypot(*(x - y for x, y in pairs)) <= tolerance * norm
