"""JUnit's XML of a gate, as a parser reads it."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from macer.reporting.gate import Requirement
from macer.reporting.junit import write_junit
from macer.system.errors import Mistake

PASSED = Requirement("accuracy", True, 0.5, 0.6, 0.7, 100, "is at least 0.6")
FAILED = Requirement("worst class", False, 0.5, 0.4, 0.5, 10, 'class <3> & "cat"\x1b is the worst')


# law


def test_every_requirement_is_a_test_case_and_those_that_fail_say_why(tmp_path: Path) -> None:
    file = tmp_path / "gate.xml"
    write_junit("runs/a", [PASSED, FAILED], file)
    root = ElementTree.parse(file).getroot()
    assert root.tag == "testsuites"
    [suite] = root
    for counted in (root, suite):
        assert {name: counted.get(name) for name in ("tests", "failures", "errors")} == {
            "tests": "2",
            "failures": "1",
            "errors": "0",
        }
    assert (suite.tag, suite.get("name")) == ("testsuite", "macer gate")
    passed, failed = suite
    assert [case.get("name") for case in (passed, failed)] == ["accuracy", "worst class"]
    assert {case.get("classname") for case in (passed, failed)} == {"runs/a"}
    assert [part.tag for part in passed] == ["system-out"]
    [failure] = failed
    assert failure.tag == "failure"
    assert failure.get("message") == failure.text == 'class <3> & "cat"\\x1b is the worst'


def test_the_same_result_gives_the_same_bytes_and_any_name_is_xml(tmp_path: Path) -> None:
    odd = "a\n\x00<é\udcff\u202e>"
    for name in ("a.xml", "b.XML"):
        write_junit(odd, [PASSED], tmp_path / name)
    content = (tmp_path / "a.xml").read_bytes()
    assert content == (tmp_path / "b.XML").read_bytes()
    [case] = ElementTree.fromstring(content).iter("testcase")
    assert case.get("classname") == "a\\n\\x00<é\\udcff\\u202e>"


# refusal


@pytest.mark.parametrize("name", ["gate.txt", "certificates.tsv", "xml"])
def test_a_file_that_is_not_xml_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Mistake, match=r"path of a JUnit file must end in .xml, got"):
        write_junit("a", [PASSED], tmp_path / name)
    assert list(tmp_path.iterdir()) == []
