"""A page as PDF, printed by a browser that is installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from macer.system.errors import Mistake
from macer.system.files import check_ending, read_file, write_file

# Chromium and what is made of it, by the names of their commands.
BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "microsoft-edge", "microsoft-edge-stable", "msedge", "brave-browser",
)  # fmt: skip
SECONDS = 120  # a page takes two or three


def check_pdf(path: Path) -> None:
    """Refuse a file of another kind, and to begin where no browser is."""
    check_ending(path, "a PDF", ".pdf")
    find_browser()


def find_browser() -> str:
    """The first of BROWSERS on the PATH."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise Mistake(
        "a browser must be on the PATH to print a page, got none of chromium, google-chrome and "
        "msedge; install one, or write the page by --html and print it yourself"
    )


def print_page(page: Path, path: Path) -> None:
    """Print an HTML file into a PDF; the browser gets a profile of its own, and no network."""
    with tempfile.TemporaryDirectory(prefix="macer-") as folder:
        printed = Path(folder) / "page.pdf"
        command = [
            find_browser(), "--headless", "--disable-gpu", "--no-first-run",
            "--no-pdf-header-footer", f"--user-data-dir={folder}/profile",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # root has none
            f"--print-to-pdf={printed}", page.resolve().as_uri(),
        ]  # fmt: skip
        try:
            ended = subprocess.run(command, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Mistake(f"{command[0]} could not print {page}: {error}") from error
        if not printed.is_file():
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise Mistake(
                f"{command[0]} printed nothing of {page}, exit code {ended.returncode}"
                f"{': ' + lines[-1] if lines else ''}"
            )
        write_file(path, read_file(printed))
