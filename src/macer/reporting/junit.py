"""A gate's requirements as JUnit's XML, which services that build software show as tests."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from macer.reporting.gate import Requirement
from macer.system.files import check_ending, check_place, write_file
from macer.system.text import one_line


def check_junit(path: Path) -> None:
    """Refuse a file that is not XML by its ending, or that cannot be written."""
    check_ending(path, "a JUnit file", ".xml")
    check_place(path)


def write_junit(name: str, requirements: Sequence[Requirement], path: Path) -> None:
    """Write one test case per requirement; the same result gives the same bytes.

    Args:
        name: of the run.
    """
    check_junit(path)
    failed = sum(not requirement.passed for requirement in requirements)
    counts = {"tests": str(len(requirements)), "failures": str(failed), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "macer gate", **counts})
    for requirement in requirements:
        named = {"classname": one_line(name), "name": requirement.name, "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", named)
        line = one_line(requirement.line)
        if requirement.passed:
            ElementTree.SubElement(case, "system-out").text = line
        else:
            failure = {"message": line, "type": "macer.gate"}
            ElementTree.SubElement(case, "failure", failure).text = line
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    write_file(path, content + b"\n")
