"""What becomes of memory that is freed, in processes of their own."""

import platform
import subprocess
import sys

import pytest

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are of glibc")

ARENAS = """
import ctypes, sys, tempfile, threading
from macer.system.allocator import share_arenas

share_arenas()
together = threading.Barrier(8)

def take():
    kept = [bytes(1000) for _ in range(1000)]
    together.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap "))
"""

TRIM = """
from pathlib import Path
from macer.system.allocator import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

kept = [bytes(1000) for _ in range(100_000)]  # 100 MB, in pieces that glibc keeps
last = bytes(1000)  # behind them, so that they are not the end of the heap
full = resident()
del kept
before = resident()
give_back()
print(full, before, resident())
"""

PAGES = """
from resource import RUSAGE_SELF, getrusage
from macer.system.allocator import keep_freed

{first}
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(20):
    blocks = [bytearray(b"1") * 30_000_000 for _ in range(4)]
    del blocks
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""


def output(script: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return [int(word) for word in done.stdout.split()]


@glibc
def test_threads_take_memory_from_two_arenas() -> None:
    assert output(ARENAS) == [2]


@glibc
def test_what_was_freed_goes_back_to_the_system() -> None:
    full, before, after = output(TRIM)
    assert after < before - 10_000, (full, before, after)  # pages of 4 kB: 40 MB


@pytest.mark.medium
@glibc
def test_what_was_freed_is_used_again() -> None:
    [usual], [kept] = output(PAGES.format(first="")), output(PAGES.format(first="keep_freed()"))
    assert kept < usual / 4, (usual, kept)
