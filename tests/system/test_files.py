import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from macer.system.errors import Mistake
from macer.system.files import (
    locked,
    read_file,
    remove_leftovers,
    sha256_of_file,
    write_atomically,
    write_file,
)

HOLDER = """
import sys
from pathlib import Path
from macer.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

WRITER = """
import sys
from pathlib import Path
from macer.system.files import write_atomically
while True:
    for letter in (b"a", b"b"):
        write_atomically(Path(sys.argv[1]), letter * 1_000_000)
"""


# law


@pytest.mark.parametrize("write", [write_atomically, write_file])
@pytest.mark.parametrize("failing", ["open", "fsync", "replace"])
def test_a_failing_write_leaves_the_old_content_and_nothing_else(
    tmp_path, monkeypatch, failing, write
):
    file = tmp_path / "a.txt"
    write(file, b"old")

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, fail)
    with pytest.raises(OSError, match="no space"):
        write(file, b"new")
    monkeypatch.undo()
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])


def test_the_content_is_on_the_disk_before_its_name_and_both_on_return(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor):
        done.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "content")
        fsync(descriptor)

    def note_replace(path, target):
        done.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_atomically(tmp_path / "a.txt", b"new")
    assert done == ["content", "name", "folder"]


@pytest.mark.medium
def test_a_killed_writer_leaves_whole_content(tmp_path):
    file, draw = tmp_path / "a.bin", random.Random(0)
    for _ in range(8):
        file.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)])
        while not file.exists():
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.05))
        writer.kill()
        writer.wait()
        content = file.read_bytes()
        assert content in (b"a" * 1_000_000, b"b" * 1_000_000)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [file]


def test_leftovers_are_removed_and_nothing_else(tmp_path):
    kept = [".a.tmp", ".a.txt", ".lock", "a.txt", "a.tmp", "b.1.tmp"]
    for name in (*kept, ".a.txt.123.tmp", ".manifest.json.99999.tmp"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_lock_is_free_again_after_the_block_and_after_an_error_in_it(tmp_path):
    with locked(tmp_path):
        pass
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        1 / 0  # noqa: B018
    with locked(tmp_path):
        pass


def test_a_lock_is_refused_while_a_process_holds_it_and_free_once_that_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(Mistake, match="is being written by another process; wait for it or"),
            locked(tmp_path),
        ):
            pytest.fail("locked twice")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with locked(tmp_path):
        pass


# known value


def test_the_hash_is_sha_256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert sha256_of_file(tmp_path / "a") == known


# refusal


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"no folder .*none to write a.png into: make it first"):
        write_file(tmp_path / "none" / "a.png", b"")
    with pytest.raises(Mistake, match="path must be a file to write, got the folder"):
        write_file(tmp_path, b"")


def test_a_second_lock_in_the_same_process_is_refused(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(Mistake, match="is being written by another process"),
        locked(tmp_path),
    ):
        pytest.fail("locked twice")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    script = "import sys; from pathlib import Path; from macer.system.files import read_file\n"
    done = subprocess.run(
        [sys.executable, "-c", script + "read_file(Path(sys.argv[1]))", str(tmp_path / "pipe")],
        capture_output=True, text=True, check=False, timeout=10,
    )  # fmt: skip
    assert "must be a regular file, got a pipe" in done.stderr


def test_a_file_is_read_up_to_its_limit_and_a_larger_one_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    assert read_file(path, limit=100) == bytes(100)
    with pytest.raises(Mistake, match="must be at most 99 bytes, got 100"):
        read_file(path, limit=99)
