"""Evidence is of a run if every hash and figure is; any that is changed is found."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evidence_run import evidence_of, write_run
from journals import rewrite

from macer.data.selection import Selection
from macer.reporting.evidence_check import check_evidence, parse_evidence, read_evidence
from macer.system.errors import AuditFailed, Mistake

Way = tuple[str | int, ...]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("evidence") / "run", images=30)


def leaves(value: Any, way: Way = ()) -> Iterator[Way]:
    """The ways to every number, text, flag and null of a document."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        if isinstance(entry, dict | list):
            yield from leaves(entry, (*way, key))
        else:
            yield (*way, key)


def changed(document: dict[str, Any], way: Way) -> dict[str, Any]:
    """The document with another value in one place."""
    other = copy.deepcopy(document)
    place: Any = other
    for key in way[:-1]:
        place = place[key]
    value = place[way[-1]]
    match value:
        case bool():
            place[way[-1]] = not value
        case int():
            place[way[-1]] = value + 1
        case float():
            place[way[-1]] = value + 1e-6
        case str():
            place[way[-1]] = f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
        case None:
            place[way[-1]] = 7
    return other


# law


@pytest.mark.parametrize(
    ("images", "radius"), [(Selection(), None), (Selection(2, 20, 2), 0.1)], ids=["all", "some"]
)
def test_the_evidence_of_a_run_is_of_it(run: Path, images: Selection, radius: float | None) -> None:
    check_evidence(evidence_of(run, images, radius), run)


@pytest.mark.medium
def test_every_entry_that_is_changed_is_found(run: Path) -> None:
    document = evidence_of(run)
    ways = [way for way in leaves(document) if way[0] not in ("macer", "run", "clauses", "limits")]
    ways += [("clauses", 0, "covered"), ("limits", 0)]
    assert len(ways) > 60
    for way in ways:
        with pytest.raises((AuditFailed, Mistake)):
            check_evidence(changed(document, way), run)


def test_an_entry_that_is_removed_or_added_is_found(run: Path) -> None:
    document = evidence_of(run)
    for key in document.keys() - {"macer", "run"}:
        with pytest.raises((AuditFailed, Mistake)):
            check_evidence({k: v for k, v in document.items() if k != key}, run)
    with pytest.raises(AuditFailed, match="approved is true, the run gives null"):
        check_evidence({**document, "approved": True}, run)
    with pytest.raises(AuditFailed, match=r"classes is \[\], the run gives "):
        check_evidence({**document, "classes": []}, run)


def test_another_journal_is_found_by_its_hash_though_its_checksums_are_right(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run", images=30)
    document = evidence_of(run)
    rewrite(run, header={"seed": 1})
    with pytest.raises(AuditFailed, match=r"not of this run: hashes\.journal is"):
        check_evidence(document, run)


def test_the_folders_name_and_the_version_of_macer_are_free(run: Path) -> None:
    check_evidence({**evidence_of(run), "run": "elsewhere", "macer": "9.9"}, run)


def test_bounds_may_differ_in_their_last_bits(run: Path) -> None:
    document = evidence_of(run)
    document["verdict"]["lower"] *= 1 + 2**-50
    check_evidence(document, run)


# refusal


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "must be evidence in JSON: "),
        (b"\xff", "must be evidence in JSON: "),
        (b"[" * 100_000, "must be evidence in JSON: "),
        (b"[]", "must be evidence of schema 1, as"),
        (b'{"schema": 2}', "must be evidence of schema 1, as"),
    ],
)
def test_what_is_no_evidence_is_refused(content: bytes, line: str) -> None:
    with pytest.raises(Mistake, match=line):
        parse_evidence(content, Path("a.json"))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"images": 1, "verdict": 2},
        {"images": {"start": "0", "stop": None, "skip": 1}},
        {"verdict": {"radius": None, "radius_chosen": ""}},
    ],
)
def test_evidence_without_images_or_radius_is_refused(run: Path, wrong: dict[str, Any]) -> None:
    document = {"schema": 1} if not wrong else {**evidence_of(run), **wrong}
    with pytest.raises(Mistake, match="evidence must have images and a verdict"):
        check_evidence(document, run)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, run: Path) -> None:
    with pytest.raises(Mistake, match="no evidence at"):
        read_evidence(tmp_path / "none.json")
    with pytest.raises(Mistake, match="no certificates in"):
        check_evidence(json.loads(json.dumps(evidence_of(run))), tmp_path)
