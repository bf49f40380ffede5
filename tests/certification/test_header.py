import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from journals import ENTRIES, HEADER

from macer.certification import journal
from macer.certification.header import ENTRIES as CHECKS
from macer.certification.header import OLDER, Header, difference
from macer.certification.journal import journal_line, read_journal
from macer.recipes import CertifyRecipe
from macer.runs.names import JOURNAL
from macer.runs.zoo import FOLDER
from macer.system.errors import Mistake

# law


def older(entries: dict) -> dict:
    return {name: value for name, value in entries.items() if name not in OLDER}


def test_a_header_is_read_as_it_was_written():
    assert Header.from_json(ENTRIES) == HEADER
    assert list(ENTRIES) == [name for name in CHECKS if name not in ("split", "value_range")]
    held_out = replace(HEADER, split="train", value_range=None, exact=False)
    assert list(held_out.to_json()) == list(CHECKS)
    assert Header.from_json(json.loads(json.dumps(held_out.to_json()))) == held_out


@pytest.mark.parametrize(
    "entries", [ENTRIES, older(ENTRIES), dict(reversed(older(ENTRIES).items()))]
)
def test_a_header_that_is_read_and_written_again_is_the_same_line(entries):
    assert json.dumps(Header.from_json(entries).to_json()) == json.dumps(entries)


@pytest.mark.parametrize("folder", sorted(path.parent for path in FOLDER.glob(f"*/{JOURNAL}")))
def test_the_journals_that_come_with_macer_are_written_again_as_they_are(folder: Path):
    with (folder / JOURNAL).open("rb") as file:
        first = file.readline()
    assert journal_line(b"", read_journal(folder / JOURNAL).header.to_json()) == first


def test_an_entry_that_an_older_header_lacks_is_written_once_it_has_another_value():
    header = Header.from_json(older(ENTRIES))
    changed = replace(header, split="train", family=3)
    assert changed.to_json() == {**older(ENTRIES), "split": "train", "family": 3}


def test_an_older_header_has_what_held_before_there_were_such_entries():
    header = Header.from_json(older(ENTRIES))
    assert {name: getattr(header, name) for name in OLDER} == OLDER


def test_every_field_has_its_check_and_a_header_has_every_setting():
    names = [field.name for field in fields(Header)]
    assert [*CHECKS, "written"] == names
    assert {field.name for field in fields(CertifyRecipe)} <= set(names)
    assert HEADER.recipe == CertifyRecipe(n=1000, precision="fp32")


@pytest.mark.parametrize(
    "name", [name for name in CHECKS if name not in ("macer", "format", "also")]
)
def test_headers_that_differ_in_an_entry_differ(name):
    header = replace(HEADER, exact=False) if name == "value_range" else HEADER
    other = {"split": "train", "precision": "bf16", "device": "cuda", "bound": "hoeffding"}
    others = {
        "outputs": [[1.0, 2.0]], "family": 3, "radius": 0.5, "cpu": "Z80", "value_range": None,
    }  # fmt: skip
    value = getattr(HEADER, name)
    if type(value) is bool:
        others[name] = not value
    elif isinstance(value, str):
        others.setdefault(name, "ef" * 32)
    elif isinstance(value, int | float):
        others[name] = value / 2 if isinstance(value, float) else value + 1
    changed = replace(header, **{name: (others | other)[name]})
    assert difference(header, header) is None
    assert difference(header, changed)[0] == name == difference(changed, header)[0]


def test_what_an_older_header_does_not_say_is_no_difference():
    assert difference(Header.from_json(older(ENTRIES)), replace(HEADER, macer="9")) is None


def test_a_journal_promises_no_reading_that_was_not_fixed_before_its_certificates():
    """One that says nothing takes certificates that were made to be read otherwise too."""
    more = replace(HEADER, also=["runner-up"])
    assert difference(HEADER, more) is None is difference(more, more)
    assert difference(more, HEADER) == ("also", ["runner-up"], [])


@pytest.mark.parametrize("also", [[], ["runner-up"]])
def test_what_is_fixed_is_the_journals_own_reading_and_those_it_names_at_its_level(also):
    header = replace(HEADER, also=also)
    assert header.fixed("clopper-pearson", 0.001)
    assert header.fixed("runner-up", 0.001) == bool(also)
    for bound in ("clopper-pearson", "runner-up", "hoeffding"):
        assert not header.fixed(bound, 0.002) and not header.fixed(bound, 0.0005)
    assert not header.fixed("hoeffding", 0.001)


def test_a_header_of_today_may_lack_what_else_was_fixed_and_then_nothing_was():
    entries = {name: value for name, value in ENTRIES.items() if name != "also"}
    header = Header.from_json(entries)
    assert header.also == [] and header.to_json() == entries


# refusal


def test_a_new_header_is_checked_as_one_that_is_read():
    with pytest.raises(Mistake, match="n must be a whole number ≥ 1, got '0'"):
        replace(HEADER, n=0)


def test_an_entry_that_this_macer_does_not_know_is_refused():
    with pytest.raises(Mistake, match="it must not have colour, which this macer does not know"):
        Header.from_json(ENTRIES | {"colour": "red"})


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("n", "many", "n must be a whole number ≥ 1, got 'many'"),
        ("n", 10**30, "n must be a whole number ≥ 1"),
        ("n", True, "n must be a whole number ≥ 1"),
        ("alpha", 0, "alpha must be between 0 and 1, got '0'"),
        ("alpha", float("nan"), "alpha must be between 0 and 1"),
        ("sigma", 1e308, "sigma must be a number > 0"),
        (
            "bound",
            "none",
            "bound must be one of clopper-pearson, runner-up, anytime, hoeffding, bernstein, "
            "got 'none'",
        ),
        ("weights_sha256", [1], "weights_sha256 must be a SHA-256"),
        ("device", "abacus", "device must be one of cpu, cuda"),
        ("seed", -1, r"seed must be in \[0, 2⁶³\)"),
        ("format", 3, "format must be 1 to 2; a newer macer wrote it, got '3'"),
        ("outputs", [["x"]], "outputs must be rows of numbers"),
        ("family", "all", "family must be a number of images, or null"),
        ("also", "runner-up", "also must be a list of bounds, got 'runner-up'"),
        ("also", ["wald"], "also must be a list of bounds"),
        ("also", [["runner-up"]], "also must be a list of bounds"),
        ("rows", 0, "rows must be a whole number ≥ 1"),
        ("sigma", 10**400, "sigma must be a number > 0"),
        ("outputs", [[10**400]], "outputs must be rows of numbers"),
        ("outputs", [[float("nan")]], "outputs must be rows of numbers"),
    ],
)
def test_a_forged_header_is_refused_by_the_name_of_its_entry(tmp_path, entry, value, message):
    path = tmp_path / "certificates.journal"
    path.write_bytes(journal_line(b"", ENTRIES | {entry: value}))
    with pytest.raises(Mistake, match=f"must have a header that this macer knows: {message}"):
        read_journal(path)


@pytest.mark.parametrize("body", [b"[]", b"3", b"{}", b"[" * 100_000, b"\xff", b"1" * 10_000])
def test_a_header_that_is_none_is_refused(tmp_path, body):
    path = tmp_path / "certificates.journal"
    path.write_bytes(journal._digest(b"", body) + b" " + body + b"\n")
    with pytest.raises(Mistake, match="must have a header that this macer knows"):
        read_journal(path)


@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in ("format", "also")])
def test_a_header_that_lacks_an_entry_is_refused(tmp_path, name):
    path = tmp_path / "certificates.journal"
    path.write_bytes(
        journal_line(b"", {key: value for key, value in ENTRIES.items() if key != name})
    )
    with pytest.raises(Mistake, match=f"it must have {name}"):
        read_journal(path)
