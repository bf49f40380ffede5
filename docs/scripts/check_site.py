"""Refuse a built site of which a page asks another host for something when it is opened.

python docs/scripts/check_site.py site

Links that a reader follows may lead elsewhere; scripts, styles, fonts, pictures and frames may not.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

ELSEWHERE = re.compile(r"(https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)
FOLLOWED = {"a", "area"}  # by a reader, not by the browser itself
NAMING = {"canonical", "alternate", "next", "prev", "author", "license"}  # links that fetch nothing


class Fetched(HTMLParser):
    """The addresses on other hosts that a browser fetches for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the address of every element but those that only name a page."""
        values = {name: value or "" for name, value in attrs}
        if tag in FOLLOWED or (tag == "link" and set(values.get("rel", "").split()) <= NAMING):
            return
        addresses = [values.get(name, "") for name in ("src", "href", "data", "poster")]
        addresses += [part.split()[0] for part in values.get("srcset", "").split(",") if part]
        self.elsewhere += [address for address in addresses if ELSEWHERE.match(address)]
        self.elsewhere += IN_STYLE.findall(values.get("style", ""))


def fetched(file: Path) -> list[str]:
    """What a page or a style sheet fetches from other hosts."""
    text = file.read_text("utf-8")
    found = IN_STYLE.findall(text) if file.suffix == ".css" else []
    if file.suffix == ".html":
        parser = Fetched()
        parser.feed(text)
        found = parser.elsewhere
        found += [
            a
            for style in re.findall(r"<style.*?</style>", text, re.S)
            for a in IN_STYLE.findall(style)
        ]
    return found


def main(folder: Path) -> None:
    """Check every page and style sheet of a site."""
    files = sorted(file for kind in ("html", "css") for file in folder.rglob(f"*.{kind}"))
    if not files:
        raise SystemExit(f"{folder} must hold a site, got no page")
    wrong = [f"{file}: {address}" for file in files for address in fetched(file)]
    if wrong:
        raise SystemExit("pages must fetch nothing from other hosts, got\n" + "\n".join(wrong))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
