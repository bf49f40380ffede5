"""A page as PDF: by a stand-in for a browser, and by a real one where there is one."""

import os
import shutil
from pathlib import Path

import pytest
from desk import LOGS

from macer.cli.app import main
from macer.reporting.print_page import BROWSERS, find_browser, print_page
from macer.system.errors import Mistake

PRINTS = """#!/bin/sh
for argument; do
    case $argument in --print-to-pdf=*) out=${argument#--print-to-pdf=};; esac
done
printf '%%PDF-1.4 of %s' "$argument" > "$out"
"""
FAILS = "#!/bin/sh\necho first >&2\necho 'no display' >&2\nexit 3\n"


def install(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a browser on the PATH, before any other."""
    browser = folder / BROWSERS[0]
    browser.write_text(script)
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.medium
def test_report_prints_its_page_with_and_without_writing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(PRINTS, tmp_path, monkeypatch)
    page, pdf = tmp_path / "a.html", tmp_path / "a.pdf"
    assert main(["report", LOGS[0], "--html", str(page), "--pdf", str(pdf)]) == 0
    assert pdf.read_text() == f"%PDF-1.4 of {page.as_uri()}"
    assert capsys.readouterr().out.endswith(f"page: {page}\nPDF: {pdf}\n")
    page.unlink()
    assert main(["report", LOGS[0], "--pdf", str(pdf)]) == 0
    assert pdf.read_bytes().startswith(b"%PDF") and not page.exists()


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no browser")
def test_a_real_browser_prints_a_page(tmp_path: Path) -> None:
    page, pdf = tmp_path / "a.html", tmp_path / "a.pdf"
    page.write_text("<p>certified</p>")
    print_page(page, pdf)
    assert pdf.read_bytes().startswith(b"%PDF")


def test_a_browser_that_fails_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FAILS, tmp_path, monkeypatch)
    with pytest.raises(Mistake, match=r"printed nothing of .*, exit code 3: no display$"):
        print_page(tmp_path / "a.html", tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_without_a_browser_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Mistake, match="a browser must be on the PATH"):
        find_browser()
    page = tmp_path / "a.html"
    arguments = ["report", LOGS[0], "--html", str(page), "--pdf", str(tmp_path / "a.pdf")]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("macer: a browser must be on the PATH")
    assert not page.exists()


def test_another_ending_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", LOGS[0], "--pdf", str(tmp_path / "a.html")]) == 2
    assert "path of a PDF must end in .pdf" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
