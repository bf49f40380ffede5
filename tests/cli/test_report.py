"""`macer report`: the published figures in every form, pictures and a page."""

import csv
import gzip
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from desk import CERTIFY, LOGS, refuses

from macer.cli.app import main
from macer.system.files import sha256_of_file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("piece", "acrs"),
    [
        ([], ("0.531", "0.691", "0.744")),
        (["--start", "500", "--stop", "1000"], ("0.555", "0.725", "0.793")),
    ],
)
def test_report_gives_the_published_acrs_in_every_form(
    piece: list[str], acrs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ([], ["--markdown"], ["--latex"]):
        assert main(["report", *LOGS, *piece, *form]) == 0
        out = capsys.readouterr().out.replace(r"$\pm$", "±").replace(r"\_", "_")
        for log, acr in zip(("sigma0.25", "sigma0.5", "sigma1.0"), acrs, strict=True):
            assert re.search(rf"macer_{re.escape(log)}\b.* {acr} ± ", out), out
    assert main(["report", *LOGS, *piece, "--csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert tuple(f"{float(row['acr']):.3f}" for row in rows) == acrs


@pytest.mark.medium
def test_report_writes_pictures_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")):
        page = tmp_path / f"{name}.html"
        arguments = ["--plot", str(tmp_path / name), "--html", str(page)]
        assert main(["report", *LOGS[:2], *arguments]) == 0
        assert (tmp_path / name).read_bytes().startswith(start)
        assert "0.691" in page.read_text("utf-8")
        assert capsys.readouterr().out.endswith(f"curves: {tmp_path / name}\npage: {page}\n")


@pytest.mark.slow
def test_a_backend_of_a_notebook_does_not_matter(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "macer", "report", LOGS[0], "--plot", str(tmp_path / "a.svg")]
    environment = {**os.environ, "MPLBACKEND": "module://no_such.backend"}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.medium
def test_the_page_of_a_run_has_the_sha256_of_its_weights(at_desk: Path, tmp_path: Path) -> None:
    """By its manifest and by its journal."""
    page = tmp_path / "a.html"
    assert main(["report", "run", LOGS[0], "--html", str(page)]) == 0
    assert page.read_text("utf-8").count(sha256_of_file(Path("run/model.safetensors"))) == 2


@pytest.mark.medium
@pytest.mark.parametrize("form", ["--csv", "--latex", "--markdown"])
def test_a_form_stands_alone_on_standard_output(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--html", str(tmp_path / "a.html"), "--plot", str(tmp_path / "a.png")]
    assert main(["report", LOGS[0], form]) == 0
    alone = capsys.readouterr().out
    assert main(["report", LOGS[0], form, *files]) == 0
    out, err = capsys.readouterr()
    assert out == alone
    assert err == f"curves: {tmp_path / 'a.png'}\npage: {tmp_path / 'a.html'}\n"


def test_report_of_a_run_is_what_certify_printed(
    at_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "run", *CERTIFY]) == 0
    certified, note = capsys.readouterr()
    assert note == "6 of 6 images are certified already\n"
    assert main(["report", "run"]) == 0
    assert capsys.readouterr() == (certified, "")


def test_a_malformed_log_is_refused_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(Path(LOGS[0]).read_bytes()).decode().splitlines()
    lines[7] = lines[7].replace("\t", " ")
    file = tmp_path / "log.tsv"
    file.write_text("\n".join(lines))
    line = f"{file}, line 8: a row must have 6 tab-separated values, got "
    refuses(capsys, tmp_path, ["report", LOGS[1], str(file)], line)
