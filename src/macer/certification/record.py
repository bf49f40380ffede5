"""A record of a journal: one image's certificate, and what it is a certificate of."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from macer.certification.certificate import ABSTAIN, Certificate
from macer.certification.header import LARGEST_RADIUS, is_number, is_whole
from macer.recipes import MOST_VOTES
from macer.system.errors import Mistake

_LARGEST_COUNT = 2**62


@dataclass(frozen=True)
class Record:
    """An image's certificate and what it is a certificate of."""

    idx: int  # the image's number in its data set
    label: int  # its true class
    certificate: Certificate
    seconds: float
    pixels: str = ""  # their SHA-256, where the header's hash of the data does not cover them

    @classmethod
    def from_json(cls, content: object, *, exact: bool) -> "Record":
        """The record that a journal's line holds; a Mistake names what is wrong with it.

        Args:
            exact: the kind of noise, which the header says for all records.
        """
        checked = _check_record(content)
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in checked["certificate"].items()
        }
        certificate = Certificate(**fields, exact=exact)
        pixels = checked.get("pixels", "")
        return cls(checked["idx"], checked["label"], certificate, checked["seconds"], pixels)

    def to_json(self) -> dict[str, Any]:
        """The object of the journal's line, without the line's number."""
        content = {name: value for name, value in asdict(self).items() if value != ""}
        del content["certificate"]["exact"]
        if self.certificate.p_b is None:
            del content["certificate"]["p_b"]
        return content


def _check_record(content: Any) -> dict[str, Any]:
    """A record's object, if its fields are what they must be; else a Mistake that names one."""
    required = {"idx", "label", "certificate", "seconds"}
    allowed = required | {"line", "pixels"}
    if not (isinstance(content, dict) and required <= content.keys() <= allowed):
        raise Mistake(f"a record must have {', '.join(sorted(required))}")
    idx, seconds = content["idx"], content["seconds"]
    checks = {
        "idx": is_whole(idx, 0, 2**53),
        "label": is_whole(content["label"], 0, 2**31),
        "seconds": seconds == 0 or is_number(seconds, 0, 1e9),
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
    required = set(Certificate.__dataclass_fields__) - {"exact", "p_b"}  # the header has `exact`
    if (certificate.keys() | {"squares"}) - {"p_b"} != required:
        raise Mistake(f"image {idx}: a certificate must have {', '.join(sorted(required))}")
    selection = certificate["selection"]
    classes = len(selection) if isinstance(selection, list) else 0
    checks = {
        "selection": _are_counts(selection, classes) and classes > 0,
        "estimation": _are_counts(certificate["estimation"], classes),
        "squares": certificate.get("squares", []) == []
        or _are_counts(certificate["squares"], classes),
        "selected": is_whole(certificate["selected"], 0, classes - 1),
        "label": is_whole(certificate["label"], ABSTAIN, classes - 1),
        "drawn": is_whole(certificate["drawn"], 0, MOST_VOTES),
        "radius": certificate["radius"] == 0 or is_number(certificate["radius"], 0, LARGEST_RADIUS),
        "p_a": _is_probability(certificate["p_a"]),
        "p_b": "p_b" not in certificate or _is_probability(certificate["p_b"]),
    }
    _require(f"image {idx}", checks, certificate)


def _is_probability(value: object) -> bool:
    return is_number(value, -math.ulp(0.0), math.nextafter(1.0, 2.0))


def _are_counts(value: object, classes: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == classes
        and all(is_whole(count, 0, _LARGEST_COUNT) for count in value)
    )
