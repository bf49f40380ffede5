"""What glibc does with memory that is freed; with another C library nothing changes."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ARENAS = 2
_KEPT = 2**25  # bytes; mallopt refuses more
_MOST = 2**31 - 1  # bytes; mallopt takes an int


def keep_freed() -> None:
    """Keep what is freed of blocks up to 32 MB, for a program that soon needs as much again.

    By default glibc maps each large block anew, and the system fills it with zeros: two fifths of
    the time of MobileNetV2 on a CPU. Larger blocks are still mapped anew: when they were kept too,
    the holes between them took more memory than the network.
    """
    _set(_M_MMAP_THRESHOLD, _KEPT)
    _set(_M_TRIM_THRESHOLD, _MOST)


def share_arenas() -> None:
    """Let all threads take memory from two arenas; to be called before there are threads.

    glibc gives each thread that decodes images an arena of its own, which keeps what is freed.
    """
    _set(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Give the free pages of all arenas back to the system."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _set(parameter: int, value: int) -> None:
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(parameter, value)
