"""Pages of docs/ that are schemas: tables of keys and types, for documents to be checked by."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
ROW = r"^\| (\w+) \| ([\w ]+?) \| .+ \|$"
SIMPLE = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
SIMPLE["object"] = (dict,)

Parts = dict[str, dict[str, str]]


def parts_of(page: str) -> Parts:
    """The keys and types of each part of a page, by its heading of the third level."""
    text = (DOCS / page).read_text("utf-8")
    sections = re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
    parts = {
        title: dict(re.findall(ROW, section.split("\n## ")[0], re.MULTILINE))
        for title, section in sections
    }
    for keys in parts.values():
        keys.pop("key", None)
    return parts


def matches(parts: Parts, value: Any, kind: str, where: str) -> None:
    """Assert that a value is of a type of the page, to its last part."""
    if kind.endswith(" or null"):
        if value is not None:
            matches(parts, value, kind.removesuffix(" or null"), where)
    elif kind.startswith("list of "):
        assert isinstance(value, list), where
        for one in value:
            matches(parts, one, kind.removeprefix("list of "), f"{where}[]")
    elif kind in SIMPLE:
        assert isinstance(value, SIMPLE[kind]), (where, kind, value)
        assert isinstance(value, bool) == (kind == "boolean"), where
    else:
        assert isinstance(value, dict) and value.keys() == parts[kind].keys(), where
        for key, of in parts[kind].items():
            matches(parts, value[key], of, f"{where}.{key}")
