"""The header of a journal: all that its certificates depend on, checked when it is read.

A journal's checksums have no key: whoever changes a header can make them anew. So every entry is
checked before anything is computed from it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from macer.certification.certificate import ABSTAIN, Certificate
from macer.errors import Mistake
from macer.recipes import MOST_VOTES, CertifyRecipe

Header = dict[str, Any]
Row = Sequence[float | None]  # of one image's outputs; None is a number that is not finite
Outputs = Sequence[Row]

# 2: every line says its number, and the images that were asked for are stated. 1 says neither.
FORMAT = 2

LARGEST_RADIUS = 1e6
_LARGEST_COUNT = 2**62

# Entries that headers of format 1 may lack, with what holds of their certificates; the split is
# left out for test images.
LATER: Header = {"format": 1, "split": "test", "family": None, "row_by_row": False, "cpu": None}

Check = tuple[Callable[[Any], bool], str]


def _is_whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and low < value < high


def _one_of(*names: str) -> Check:
    return lambda value: value in names, f"one of {', '.join(names)}"


_TEXT: Check = (lambda value: isinstance(value, str) and len(value) <= 10_000, "a text")
_FLAG: Check = (lambda value: type(value) is bool, "true or false")
_ABOVE_0: Check = (lambda value: _is_number(value, 0, LARGEST_RADIUS), "a number > 0")
_SAMPLES: Check = (lambda value: _is_whole(value, 1, MOST_VOTES), "a whole number ≥ 1")
_SHA256: Check = (
    lambda value: isinstance(value, str) and len(value) == 64 and value.isalnum(),
    "a SHA-256",
)
_BOUNDS = get_args(get_type_hints(CertifyRecipe)["bound"])

# What must hold of each entry, and the same in words.
ENTRIES: dict[str, Check] = {
    "macer": _TEXT,
    "torch": _TEXT,
    "model": _TEXT,
    "weights_sha256": _SHA256,
    "dataset": _TEXT,
    "data_sha256": _SHA256,
    "sigma": _ABOVE_0,
    "n0": _SAMPLES,
    "n": _SAMPLES,
    "alpha": (lambda value: _is_number(value, 0, 1), "between 0 and 1"),
    "bound": _one_of(*_BOUNDS),
    "beta": _ABOVE_0,
    "radius": (
        lambda value: value is None or value == 0 or _ABOVE_0[0](value),
        "a number ≥ 0, or null",
    ),
    "exact": _FLAG,
    "seed": (lambda value: _is_whole(value, 0, 2**63 - 1), "in [0, 2⁶³)"),
    "score": _FLAG,
    "precision": _one_of("fp32", "bf16"),
    "chunk": _SAMPLES,
    "rows": (lambda value: _is_whole(value, 1, 10**7), "a whole number ≥ 1"),
    "device": _one_of("cpu", "cuda"),
    "tf32": _FLAG,
}
LATER_ENTRIES: dict[str, Check] = {
    "format": (lambda value: _is_whole(value, 1, FORMAT), f"1 to {FORMAT}; a newer macer wrote it"),
    "split": _one_of("test", "train"),
    "family": (lambda v: v is None or _SAMPLES[0](v), "a number of images, or null"),
    "row_by_row": _FLAG,
    "cpu": (lambda value: value is None or _TEXT[0](value), "a text, or null"),
    "outputs": (
        lambda value: isinstance(value, list) and all(map(_is_row, value)) and len(value) <= 1000,
        "rows of numbers",
    ),
}


def _is_row(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 1000
        and all(v is None or _is_number(v, -1e300, 1e300) for v in value)
    )


def check_header(header: object) -> Header:
    """The header, if each of its entries is what it must be; else a Mistake that names one."""
    if not isinstance(header, dict):
        raise Mistake(f"it must be an object, got {str(header)[:40]}")
    # Else whoever removed outputs and processor would be spared the checks that need them.
    later = LATER_ENTRIES.keys() - {"split"} if header.get("format", 1) != 1 else set()
    if missing := [name for name in (*ENTRIES, *sorted(later)) if name not in header]:
        raise Mistake(f"it must have {missing[0]}")
    for name, (holds, requirement) in (ENTRIES | LATER_ENTRIES).items():
        if name in header and not holds(header[name]):
            raise Mistake(f"{name} must be {requirement}, got {str(header[name])[:40]!r}")
    return header


def entry(header: Mapping[str, Any], name: str) -> Any:
    """An entry of a header, or what holds where an older version has not written it."""
    return header[name] if name in header else LATER[name]


def check_record(content: Any) -> dict[str, Any]:
    """A record's object, if its fields are what they must be; else a Mistake that names one."""
    wanted = {"idx", "label", "certificate", "seconds"}
    if not (isinstance(content, dict) and wanted <= content.keys() <= wanted | {"line", "pixels"}):
        raise Mistake(f"a record must have {', '.join(sorted(wanted))}")
    idx, seconds = content["idx"], content["seconds"]
    checks = {
        "idx": _is_whole(idx, 0, 2**53),
        "label": _is_whole(content["label"], 0, 2**31),
        "seconds": seconds == 0 or _is_number(seconds, 0, 1e9),
        "pixels": isinstance(content.get("pixels", ""), str),
        "certificate": isinstance(content["certificate"], dict),
    }
    _require(f"image {str(idx)[:20]}", checks, content)
    _check_certificate(idx, content["certificate"])
    return content


def _require(what: str, checks: Mapping[str, bool], content: Mapping[str, Any]) -> None:
    for name, ok in checks.items():
        if not ok:
            raise Mistake(f"{what}: {name} is {str(content.get(name))[:40]!r}")


def _check_certificate(idx: int, certificate: dict[str, Any]) -> None:
    wanted = set(Certificate.__dataclass_fields__) - {"exact"}  # the header has it
    if certificate.keys() | {"squares"} != wanted:
        raise Mistake(f"image {idx}: a certificate must have {', '.join(sorted(wanted))}")
    selection = certificate["selection"]
    classes = len(selection) if isinstance(selection, list) else 0
    checks = {
        "selection": _are_counts(selection, classes) and classes > 0,
        "estimation": _are_counts(certificate["estimation"], classes),
        "squares": certificate.get("squares", []) == []
        or _are_counts(certificate["squares"], classes),
        "selected": _is_whole(certificate["selected"], 0, classes - 1),
        "label": _is_whole(certificate["label"], ABSTAIN, classes - 1),
        "drawn": _is_whole(certificate["drawn"], 0, MOST_VOTES),
        "radius": certificate["radius"] == 0
        or _is_number(certificate["radius"], 0, LARGEST_RADIUS),
        "p_a": _is_number(certificate["p_a"], -math.ulp(0.0), math.nextafter(1.0, 2.0)),
    }
    _require(f"image {idx}", checks, certificate)


def _are_counts(value: object, classes: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == classes
        and all(_is_whole(count, 0, _LARGEST_COUNT) for count in value)
    )


# Entries that say by whom and how a journal was begun, and bind nothing.
_TOLD = ("macer", "format")

# Of the norm of a row of outputs: what rounding in a precision, on another machine, may change.
_ROUNDING = {"fp32": 1e-3, "bf16": 0.05}


def difference(a: Header, b: Header) -> tuple[str, Any, Any] | None:
    """The first entry in which two headers differ, with both its values.

    An entry that one of them lacks counts as what held before there was such an entry.
    """
    a, b = LATER | a, LATER | b
    for name in {**a, **b}:
        if name not in _TOLD and not _agree(name, a, b):
            if name == "outputs":  # many numbers
                return name, "those of the network that was certified", "others"
            return name, a.get(name), b.get(name)
    return None


def _agree(name: str, a: Header, b: Header) -> bool:
    if name == "cpu":
        return a[name] == b[name] or None in (a[name], b[name])
    if name == "outputs":
        return not ("outputs" in a and "outputs" in b) or outputs_agree(
            a[name], b[name], a["precision"]
        )
    return bool(a.get(name) == b.get(name))


def outputs_agree(a: Outputs, b: Outputs, precision: str) -> bool:
    """Whether two networks' outputs on the same images differ by no more than rounding does."""
    same_form = [len(row) for row in a] == [len(row) for row in b]
    return same_form and all(
        _rows_agree(x, y, _ROUNDING[precision]) for x, y in zip(a, b, strict=True)
    )


def _rows_agree(a: Row, b: Row, tolerance: float) -> bool:
    if [x is None for x in a] != [y is None for y in b]:
        return False
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    norm = math.hypot(*(x for x, _ in pairs))
    return math.hypot(*(x - y for x, y in pairs)) <= tolerance * norm
