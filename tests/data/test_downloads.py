"""Downloads from files and from a server on this machine."""

import gzip
import hashlib
import io
import re
import tarfile
import threading
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest
from data_files import refused
from rich.console import Console

from macer.cli.app import main
from macer.data import downloads
from macer.data.downloads import Download, File, download
from macer.system import progress


def described(path, content):
    return File(path, len(content), hashlib.sha256(content).hexdigest())


def offer(monkeypatch, *sources):
    monkeypatch.setitem(downloads.SOURCES, "mnist", sources)


def packed(tmp_path, content, name="packed"):
    path = tmp_path / name
    path.write_bytes(content)
    return path.as_uri()


def tar_of(**members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"batches/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def contents(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@contextmanager
def served(content, length):
    """The address of a server whose every path but /b has the content.

    Args:
        length: bytes that the server announces; True for the right number, False for none.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404 if self.path == "/b" else 200)
            if length:
                self.send_header("Content-Length", str(len(content) if length is True else length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# law


def test_a_download_is_unpacked_checked_and_put_in_place(tmp_path, monkeypatch):
    address = packed(tmp_path, gzip.compress(b"hello"))
    offer(monkeypatch, Download(address, 100, downloads.gunzip, {"": described("a/b", b"hello")}))
    folder = tmp_path / "data"
    assert download("mnist", folder) == [folder / "a/b"]
    assert (folder / "a/b").read_bytes() == b"hello"
    assert contents(folder) == ["a/b"]


@pytest.mark.parametrize("length", [True, False])
def test_the_command_shows_the_share_the_rate_and_the_time_left(
    length, tmp_path, monkeypatch, capsys
):
    """Of the length that the server gives, or of the limit if it gives none."""
    shown = StringIO()
    monkeypatch.setattr(progress, "console", Console(file=shown, width=120))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "SECONDS_TO_FIRST_LINE", 0.0)
    monkeypatch.setattr(progress._Lines, "ticking", nullcontext)  # no lines by the clock
    monkeypatch.setattr(downloads, "_BLOCK", 250)
    content = bytes(1000)
    with served(content, length) as address:
        files = {"": described("a", content)}
        offer(monkeypatch, Download(f"{address}/archive.bin", 2000, downloads.plain, files))
        assert main(["data", "--download", "mnist", "--data", str(tmp_path)]) == 0
    assert (tmp_path / "a").read_bytes() == content
    lines = shown.getvalue().splitlines()
    assert all(
        re.fullmatch(
            r"downloading archive.bin: \d+%, [\d,]+ bytes/s, [\d.]+ s gone(, [\d.]+ s left)?", line
        )
        for line in lines
    )
    shares = [line.split()[2] for line in lines]
    assert shares[:4] == (
        ["25%,", "50%,", "75%,", "100%,"] if length else ["12%,", "25%,", "38%,", "50%,"]
    )
    assert "mnist" in capsys.readouterr().out


def test_a_good_file_is_not_fetched_again_and_another_is_not_overwritten(tmp_path, monkeypatch):
    nowhere = (tmp_path / "nowhere").as_uri()
    offer(monkeypatch, Download(nowhere, 100, downloads.plain, {"": described("a", b"hello")}))
    (tmp_path / "a").write_bytes(b"hello")
    assert download("mnist", tmp_path) == [tmp_path / "a"]
    (tmp_path / "a").write_bytes(b"mine")
    with refused("(4 bytes); move it away and download again"):
        download("mnist", tmp_path)
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_only_expected_members_of_an_archive_are_written(tmp_path, monkeypatch):
    archive = tar_of(one=b"1", two=b"22", three=b"333")
    files = {f"batches/{n}": described(f"x/{n}", c) for n, c in (("one", b"1"), ("two", b"22"))}
    offer(monkeypatch, Download(packed(tmp_path, archive), 10_000, downloads.untar, files))
    folder = tmp_path / "data"
    download("mnist", folder)
    assert contents(folder) == ["x/one", "x/two"]
    (folder / "x/one").unlink()
    download("mnist", folder)
    assert contents(folder) == ["x/one", "x/two"]


# refusal


def test_links_in_an_archive_are_not_followed(tmp_path, monkeypatch):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        link = tarfile.TarInfo("batches/one")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    files = {"batches/one": described("x/one", b"1")}
    offer(monkeypatch, Download(packed(tmp_path, out.getvalue()), 10_000, downloads.untar, files))
    with refused("must hold x/one, got an archive without"):
        download("mnist", tmp_path / "data")
    assert contents(tmp_path / "data") == []


WRONG = {
    "another checksum": (downloads.plain, b"hellO", 100, "must have SHA-256"),
    "too short": (downloads.plain, b"hell", 100, "(4 bytes); nothing was kept"),
    "too long": (downloads.gunzip, gzip.compress(b"hello!"), 100, "(6 bytes); nothing was kept"),
    "beyond the limit": (downloads.plain, b"hello", 4, "must be at most 4 bytes, got more"),
    "gzip cut short": (downloads.gunzip, gzip.compress(b"hello")[:-3], 100, "cannot download"),
    "not gzip": (downloads.gunzip, b"hello", 100, "cannot download"),
    "tar cut short": (downloads.untar, tar_of(a=b"hello")[:40], 1000, "cannot download"),
    "not tar": (downloads.untar, b"hello", 100, "cannot download"),
    "member missing": (downloads.untar, tar_of(b=b"hello"), 1000, "must hold a, got an archive"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_download_is_refused_and_leaves_nothing(tmp_path, monkeypatch, case):
    unpack, content, limit, message = WRONG[case]
    member = "batches/a" if unpack is downloads.untar else ""
    address = packed(tmp_path, content)
    offer(monkeypatch, Download(address, limit, unpack, {member: described("a", b"hello")}))
    with refused(message):
        download("mnist", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a", "must be 5 bytes, got 3; download again"),
        ("b", "HTTP Error 404: Not Found; try again"),
    ],
)
def test_a_transfer_cut_short_or_failed_leaves_nothing(tmp_path, monkeypatch, path, message):
    with served(b"hel", length=5) as address:
        files = {"": described("a", b"hello")}
        offer(monkeypatch, Download(f"{address}/{path}", 100, downloads.plain, files))
        with refused(message):
            download("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_without_a_download_is_refused(tmp_path):
    with refused(
        "no download for data set 'folder'; choose from cifar10, fashion-mnist, mnist, svhn"
    ):
        download("folder", tmp_path)
