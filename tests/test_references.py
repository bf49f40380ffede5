"""Every paper that is cited by a key is listed in docs/references.md, and no other."""

import re
from pathlib import Path
from unicodedata import normalize

import pytest

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs/references.md"
KEY = re.compile(r"\b[A-Z][a-z]+\+\d\d\b")  # Zhai+20
ENTRY = re.compile(r"- \*\*\[([^]]+)\]\*\* (.+)")


def entries() -> dict[str, str]:
    """The listed papers by their keys."""
    return dict(match.groups() for match in map(ENTRY.fullmatch, lines_of_list()) if match)


def lines_of_list() -> list[str]:
    return LIST.read_text("utf-8").splitlines()


def cited() -> dict[str, set[str]]:
    """Every key in the source, the documentation and the README, with the files that use it."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files += [path for kind in ("py", "toml", "j2") for path in (ROOT / "src").rglob(f"*.{kind}")]
    uses: dict[str, set[str]] = {}
    for path in files:
        for key in KEY.findall(path.read_text("utf-8")) if path != LIST else ():
            uses.setdefault(key, set()).add(str(path.relative_to(ROOT)))
    return uses


# law


def test_every_cited_paper_is_listed():
    missing = {key: files for key, files in cited().items() if key not in entries()}
    assert len(cited()) >= 15
    assert missing == {}


def test_no_paper_is_cited_without_a_key():
    years = re.compile(r"\[[A-Z][\w&. ]+ (19|20)\d\d")  # such as [Ville 1939]
    files = (ROOT / "src").rglob("*.py")
    assert [str(file) for file in files if years.search(file.read_text("utf-8"))] == []


def test_every_listed_paper_is_cited():
    assert set(entries()) - set(cited()) == set()


def test_each_paper_is_listed_once_in_alphabetical_order():
    keys = [match[1] for match in map(ENTRY.fullmatch, lines_of_list()) if match]
    assert keys == sorted(set(keys))
    assert len(keys) == sum(line.startswith("-") for line in lines_of_list())


@pytest.mark.parametrize("key", entries())
def test_an_entry_has_authors_title_and_the_year_of_its_key(key):
    text = normalize("NFKD", entries()[key]).encode("ascii", "ignore").decode()  # keys are ASCII
    first_author = re.split(r",| and |\. \*", text)[0].split()[-1]
    assert first_author == key.split("+")[0]
    assert re.search(r"\*[A-Z].+\*", text)
    century = "19" if int(key[-2:]) > 30 else "20"
    assert f" {century}{key[-2:]}." in text


def test_a_link_to_arxiv_has_the_number_that_it_shows():
    for text in entries().values():
        assert re.findall(r"arXiv:([\d.]+)\]", text) == re.findall(r"abs/([\d.]+)\)", text)
