import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from journals import ENTRIES, HEADER, record_of
from processes import surroundings

from macer.certification import journal
from macer.certification.journal import Contents, journal_line, open_journal, read_journal
from macer.certification.record import Record
from macer.system.errors import Mistake, Stopped
from macer.system.signals import sigterm_raises


def journal_of(path: Path, indices, header=HEADER) -> bytes:
    with open_journal(path, header) as writer:
        for idx in indices:
            writer.append([record_of(idx)])
    return path.read_bytes()


def records_of(indices) -> dict[int, Record]:
    return {idx: record_of(idx) for idx in indices}


# law


def test_what_is_appended_is_read_back(tmp_path):
    path = tmp_path / "run" / "certificates.journal"
    with open_journal(path, HEADER) as writer:
        assert writer.contents.records == {}
        writer.append([record_of(4), record_of(2)])
        writer.append([])
        assert read_journal(path).records == records_of([4, 2])  # before it is closed
    with open_journal(path, HEADER) as writer:
        assert writer.contents == Contents(HEADER, records_of([4, 2]), 0)
        writer.append([record_of(9)])
        assert writer.contents.records == records_of([4, 2, 9])
    assert read_journal(path) == Contents(HEADER, records_of([4, 2, 9]), 0)


@pytest.mark.medium
def test_a_journal_cut_anywhere_keeps_exactly_the_whole_records_before_the_cut(tmp_path):
    path = tmp_path / "certificates.journal"
    content = journal_of(path, range(4))
    header, *ends = (match.start() for match in re.finditer(b"\n", content))
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        if cut < header:
            with pytest.raises(Mistake, match="must begin with an undamaged header"):
                read_journal(path)
        else:
            whole = sum(end <= cut for end in ends)
            assert read_journal(path).records == records_of(range(whole)), cut


@pytest.mark.medium
def test_a_journal_cut_anywhere_can_be_continued(tmp_path):
    path = tmp_path / "certificates.journal"
    content = journal_of(path, range(3))
    second = content.split(b"\n")[:2]
    for cut in range(len(b"\n".join(second)) - 3, len(content)):
        path.write_bytes(content[:cut])
        with open_journal(path, HEADER) as writer:
            writer.append(
                [record_of(idx) for idx in range(5) if idx not in writer.contents.records]
            )
        contents = read_journal(path)
        assert (contents.records, contents.dropped) == (records_of(range(5)), 0), cut
        whole = content[:cut] if content[cut:][:1] == b"\n" else content[:cut].rpartition(b"\n")[0]
        assert path.read_bytes().startswith(whole)


def flipped(content: bytes, flip: int) -> bytes:
    damaged = bytearray(content)
    damaged[flip // 8] ^= 1 << flip % 8
    return bytes(damaged)


def survivors(content: bytes, flip: int) -> set[int]:
    """The records that a flipped bit is not in; a newline belongs to the lines on both sides."""
    ends = [match.start() for match in re.finditer(b"\n", content)]
    return {
        idx for idx, (before, end) in enumerate(pairwise(ends)) if not before <= flip // 8 <= end
    }


@pytest.mark.medium
def test_a_flipped_bit_loses_the_record_it_is_in_and_no_other(tmp_path):
    path, draw = tmp_path / "certificates.journal", random.Random(0)
    content = journal_of(path, range(5))
    header = content.index(b"\n")
    newlines = [match.start() for match in re.finditer(b"\n", content)]
    for flip in [8 * byte + bit for byte in newlines for bit in range(8)] + [
        draw.randrange(8 * len(content)) for _ in range(1000)
    ]:
        path.write_bytes(flipped(content, flip))
        if flip // 8 <= header:
            with pytest.raises(Mistake, match="must begin with an undamaged header"):
                read_journal(path)
        else:
            contents = read_journal(path)
            assert contents.records == records_of(survivors(content, flip)), flip
            assert contents.dropped >= 1


def test_a_journal_with_a_flipped_bit_can_be_continued(tmp_path):
    path, draw = tmp_path / "certificates.journal", random.Random(1)
    content = journal_of(path, range(3))
    for _ in range(50):
        flip = draw.randrange(8 * content.index(b"\n") + 8, 8 * len(content))
        path.write_bytes(flipped(content, flip))
        with open_journal(path, HEADER) as writer:
            writer.append(
                [record_of(idx) for idx in range(5) if idx not in writer.contents.records]
            )
            assert writer.contents.records == records_of(range(5)), flip
        assert read_journal(path).records == records_of(range(5)), flip


def test_a_record_of_another_journal_is_dropped(tmp_path):
    path, other = tmp_path / "certificates.journal", tmp_path / "other.journal"
    journal_of(path, [0])
    stranger = journal_of(other, [1], replace(HEADER, seed=1)).split(b"\n")[1]
    with path.open("ab") as file:
        file.write(stranger + b"\n")
    assert read_journal(path) == Contents(HEADER, records_of([0]), 1)


def test_of_two_records_of_an_image_the_first_counts(tmp_path):
    path = tmp_path / "certificates.journal"
    with open_journal(path, HEADER) as writer:
        writer.append([record_of(0), replace(record_of(1), idx=0)])
        writer.append([replace(record_of(2), idx=0)])
        assert writer.contents.records == records_of([0])
    assert read_journal(path) == Contents(HEADER, records_of([0]), doubled=[0, 0])


def test_a_record_is_on_the_disk_when_append_returns(tmp_path, monkeypatch):
    path = tmp_path / "certificates.journal"
    synced = []
    with open_journal(path, HEADER) as writer:
        monkeypatch.setattr("os.fsync", lambda _: synced.append(path.read_bytes().count(b"\n")))
        writer.append([record_of(0), record_of(1)])
    assert synced == [3]


@pytest.mark.parametrize(
    ("number", "stop"), [(signal.SIGTERM, Stopped), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_waits_until_the_records_count(number, stop, tmp_path, monkeypatch):
    """A table that is written at the end must have all that the journal has."""
    fsync = os.fsync

    def interrupted(file: int) -> None:
        fsync(file)
        signal.raise_signal(number)

    with open_journal(tmp_path / "journal", HEADER) as journal:
        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(stop), sigterm_raises():
            journal.append([record_of(3), record_of(5)])
        assert dict(journal.contents.records) == records_of([3, 5])
        monkeypatch.setattr(os, "fsync", fsync)
        journal.append([record_of(7)])
    assert dict(read_journal(tmp_path / "journal").records) == records_of([3, 5, 7])


# Imports once, then forks a writer for every journal it is sent, one at a time.
NURSERY = """
import os, sys
from pathlib import Path
from macer.certification.journal import open_journal
from journals import HEADER, record_of

def say(*words):  # in one piece, whoever else writes and whenever one is killed
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        with open_journal(Path(line.rstrip("\\n")), HEADER) as writer:
            while True:
                begin = len(writer.contents.records)
                fresh = range(begin, begin + 1 + begin % 3)
                writer.append([record_of(idx) for idx in fresh])
                say(*fresh)
    say("child", child)
    os.waitpid(child, 0)
    say("dead")
"""


@pytest.mark.slow
def test_a_thousand_killed_writers_lose_no_acknowledged_record(tmp_path):
    """A hundred journals, each written by ten writers in turn that are all killed."""
    draw, total = random.Random(0), 0
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=surroundings() | {"OPENBLAS_NUM_THREADS": "1"},  # safe to fork
    ) as nursery:  # fmt: skip
        for journal in range(100):
            path, acknowledged = tmp_path / str(journal) / "certificates.journal", set()
            for _ in range(10):
                acknowledged |= kill_one(nursery, path, draw.randrange(4), draw.uniform(0, 0.004))
                found = read_journal(path).records if path.exists() else {}
                assert acknowledged <= found.keys()
                assert found == records_of(found)
            total += len(acknowledged)
        nursery.stdin.close()
    assert total > 1000


def kill_one(nursery, path, writes, seconds) -> set[int]:
    """Start a writer, kill it a while after some writes; the records it acknowledged."""
    nursery.stdin.write(f"{path}\n")
    nursery.stdin.flush()
    lines = []

    def hear():
        line = nursery.stdout.readline()
        assert line, "the nursery died"
        return line.split()

    while (line := hear())[0] != "child":
        lines.append(line)
    while len(lines) < writes:
        lines.append(hear())
    time.sleep(seconds)
    os.kill(int(line[1]), signal.SIGKILL)
    while (line := hear()) != ["dead"]:
        lines.append(line)
    return {int(idx) for line in lines for idx in line}


# refusal


def test_a_record_that_changes_after_it_was_found_is_refused(tmp_path):
    path = tmp_path / "certificates.journal"
    content = journal_of(path, range(2))
    records = read_journal(path).records
    path.write_bytes(content.replace(b'"idx":1', b'"idx":7'))
    assert records[0] == record_of(0)
    with pytest.raises(Mistake, match="must not change while it is read"):
        records[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 0.5}, "sigma must be 0.25 to continue"),
        ({"data_sha256": "ef" * 32}, f"data_sha256 must be {'cd' * 32} to continue"),
        ({"exact": False}, "exact must be True to continue"),
        ({"split": "train"}, "split must be test to continue"),
        ({"family": 3}, "family must be None to continue"),
    ],
)
def test_another_header_is_refused_by_the_name_of_its_field(tmp_path, change, message):
    path = tmp_path / "certificates.journal"
    before = journal_of(path, range(2))
    with pytest.raises(Mistake, match=message), open_journal(path, replace(HEADER, **change)):
        pytest.fail("opened")
    assert path.read_bytes() == before


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "certificates.journal"
    with (
        open_journal(path, HEADER),
        pytest.raises(Mistake, match="is being written by another process"),
        open_journal(path, HEADER),
    ):
        pytest.fail("opened twice")


def test_a_journal_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Mistake, match=r"no certificates in .*: expected .*certificates.journal"):
        read_journal(tmp_path / "certificates.journal")


@pytest.mark.parametrize("content", [b"", b"\n", b"idx\tlabel\n", b"\xff\x00"])
def test_a_damaged_header_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "certificates.journal"
    path.write_bytes(content)
    with (
        pytest.raises(Mistake, match="must begin with an undamaged header; move the file away"),
        open_journal(path, HEADER),
    ):
        pytest.fail("opened")
    assert path.read_bytes() == content


# what was asked for


def test_a_journal_states_its_images_before_the_first_record(tmp_path):
    path = tmp_path / "certificates.journal"
    with open_journal(path, HEADER, range(0, 30, 3)) as writer:
        lines = path.read_bytes().splitlines()
        assert len(lines) == 2 and b'{"line":1,"images":[[0,28,3]]}' in lines[1]
        writer.append([record_of(0), record_of(3)])
    contents = read_journal(path)
    assert contents.scope == ((0, 28, 3),) and contents.missing == list(range(6, 30, 3))
    assert (contents.misplaced, contents.doubled) == (0, [])


def test_more_images_are_stated_and_fewer_are_not(tmp_path):
    path = tmp_path / "certificates.journal"
    for asked, scope in (
        (range(10), ((0, 10, 1),)),
        (range(5), ((0, 10, 1),)),
        (range(20), ((0, 20, 1),)),
        (range(50, 60, 5), ((0, 20, 1), (50, 56, 5))),
    ):
        with open_journal(path, HEADER, asked) as writer:
            assert writer.contents.scope == scope
        assert read_journal(path).scope == scope
    assert len(path.read_bytes().splitlines()) == 4


def test_images_beyond_a_family_are_refused(tmp_path):
    """Ten and ten images, each at a tenth of the level, hold together at twice the level."""
    path, header = tmp_path / "certificates.journal", replace(HEADER, family=10)
    with open_journal(path, header, range(10)):
        pass
    with open_journal(path, header, range(10)):  # the same ones again
        pass
    before = path.read_bytes()
    with (
        pytest.raises(Mistake, match=r"family must be all images that share alpha, 10 in .*got 11"),
        open_journal(path, header, range(11)),
    ):
        pytest.fail("opened")
    assert path.read_bytes() == before


def test_an_older_journal_is_continued_as_it_is(tmp_path):
    """Lines without numbers and entries, such as those that older versions have written."""
    path = tmp_path / "certificates.journal"
    later = ("format", "family", "row_by_row", "cpu", "outputs", "also")
    older = {name: value for name, value in ENTRIES.items() if name not in later}
    first = journal_line(b"", older)
    digest = first.partition(b" ")[0]
    path.write_bytes(first + journal_line(digest, record_of(0).to_json()))
    newer = replace(HEADER, macer="9", cpu="AVX2", family=None, outputs=[[1.0]], also=["runner-up"])
    with open_journal(path, newer, range(3)) as writer:
        assert writer.contents.scope == ((0, 3, 1),)
        writer.append([record_of(1)])
    contents = read_journal(path)
    assert contents.header.to_json() == older and contents.records == records_of([0, 1])
    assert (contents.misplaced, contents.dropped, contents.missing) == (0, 0, [2])
    assert b'"line"' not in path.read_bytes()


def test_a_journal_is_opened_in_one_pass(tmp_path, monkeypatch):
    path = tmp_path / "certificates.journal"
    journal_of(path, range(50))
    hashed = []
    digest = journal._digest
    monkeypatch.setattr(journal, "_digest", lambda *of: hashed.append(1) or digest(*of))
    with open_journal(path, HEADER):
        assert len(hashed) <= 51
