"""Write the pages of the documentation site into a folder, from which mkdocs builds it.

python docs/scripts/generate_site.py build/docs

The pages are those of docs/, README.md and a few other files. Four things change on the way:

- a line `<!-- generated: NAME -->` becomes what the function of that name in generated_parts.py
  returns;
- a link to a file of the repository that is no page becomes a link to a page with that file's text;
- the leaderboard's tables can be sorted;
- outside code no line ends within a number.
"""

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

from browser_files import runtime_is_here, write_browser_files
from generated_parts import PARTS
from leaderboard_tables import PLACE as LEADERBOARD
from leaderboard_tables import sortable, write_files
from paper_chapter import draw_paper

from macer.system.text import unbroken

ROOT = Path(__file__).parents[2]

# Pages that do not lie in docs/, and where they are in the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "results/README.md": "results/certificates.md",
}
HEADS = {
    "index.md": "---\nhide: [navigation, toc]\n---\n\n",
    LEADERBOARD: "---\nhide: [toc]\n---\n\n",  # wide tables
    "results/measured.md": "---\nhide: [toc]\n---\n\n",
    "results/paper.md": "---\nhide: [toc]\n---\n\n",
    "source": "---\nhide: [navigation]\nsearch:\n  exclude: true\n---\n\n",
}
# Folders that are not copied: scripts such as this one, and what browser_files.py writes.
NOT_COPIED = (ROOT / "docs/scripts", ROOT / "docs/browser")
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".yml": "yaml", ".json": "json"}

PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r'(\]\(|<img [^>]*?src=")([^)\s"]+)')
SCHEME = re.compile(r"[a-z]+:|#")


def pages() -> dict[Path, str]:
    """Every page of the repository, with its place in the site."""
    docs = {
        file: file.relative_to(ROOT / "docs").as_posix()
        for file in sorted((ROOT / "docs").rglob("*.md"))
    }
    return docs | {ROOT / name: place for name, place in ELSEWHERE.items()}


class Site:
    """The pages as they are in the site, and the files that they link to."""

    def __init__(self) -> None:
        self.places = pages()
        self.linked: dict[Path, str] = {}  # files without a page of their own

    def text_of(self, file: Path) -> str:
        """A page with its generated parts, its links leading to pages of the site."""
        text = PLACE.sub(lambda place: PARTS[place[1]](), file.read_text("utf-8"))
        text = sortable(text) if self.places[file] == LEADERBOARD else text
        parts = CODE.split(text)  # every other part is code
        parts[::2] = [
            unbroken(LINK.sub(lambda link: self._moved(link, file), part)) for part in parts[::2]
        ]
        return HEADS.get(self.places[file], "") + "".join(parts)

    def _moved(self, link: re.Match[str], page: Path) -> str:
        """A link of a page as it is in the site."""
        if SCHEME.match(link[2]):
            return link[0]
        name, mark, fragment = link[2].partition("#")
        target = Path(os.path.normpath(page.parent / name))
        here = PurePosixPath(self.places[page]).parent
        return f"{link[1]}{os.path.relpath(self._place(target), here)}{mark}{fragment}"

    def _place(self, target: Path) -> str:
        """Where a file is in the site; a page is made for one that has none."""
        if target in self.places:
            return self.places[target]
        if target.is_relative_to(ROOT / "docs") and is_copied(target):
            return target.relative_to(ROOT / "docs").as_posix()
        if target.exists():
            name = target.relative_to(ROOT).as_posix()
            self.linked[target] = f"source/{name}.md"
            return self.linked[target]
        raise SystemExit(f"a page links to {target}, which does not exist")


def shown(file: Path) -> str:
    """A page with the text of a file, or with the names in a folder."""
    title = f"{HEADS['source']}# {file.relative_to(ROOT).as_posix()}\n\n"
    if file.is_dir():
        names = sorted(path.name for path in file.iterdir() if path.name != "__pycache__")
        return title + "".join(f"- `{name}`\n" for name in names)
    language = LANGUAGES.get(file.suffix, "text")
    return f"{title}````{language}\n{file.read_text('utf-8')}\n````\n"


def is_copied(file: Path) -> bool:
    """Whether a file of docs/ is in the site as it is."""
    return not any(map(file.is_relative_to, NOT_COPIED))


def generate(folder: Path) -> None:
    """Write every page and picture of the site into a folder that is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    site = Site()
    texts = {place: site.text_of(file) for file, place in site.places.items()}
    texts |= {place: shown(file) for file, place in site.linked.items()}
    for place, text in texts.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    for file in (ROOT / "docs").rglob("*"):
        if file.is_file() and is_copied(file) and file.suffix not in {".md", ".pyc"}:
            copy = folder / file.relative_to(ROOT / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    draw_paper(folder)
    write_files(folder)


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
    if runtime_is_here():
        write_browser_files(Path(sys.argv[1]) / "browser")
