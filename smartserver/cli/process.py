"""The settings of a server's process: open files, and one heap for all threads."""

from __future__ import annotations

import contextlib

DESCRIPTORS = 65_536
"""Open files asked for; the usual limit of 1,024 is one of shells, not of servers."""

_ARENA_MAX = -8
"""mallopt: the number of heaps threads take memory from (malloc.h of glibc)."""

_TRIM_THRESHOLD = -1
"""mallopt: from how many free bytes at its end on a heap is cut."""

_MMAP_THRESHOLD = -3
"""mallopt: from how many bytes on a block of memory lies apart, and goes back to the system when it is freed."""

LARGE_BLOCK = 2 << 20
"""Bytes of a block that lies apart. The columns of a large push grow past that, and leave holes in the heap: with it
a push of 62,510 commits took 374 MB, without it 393. The pieces of a clone (1 MiB) stay below: to map each costs four
times the CPU."""


def raise_descriptors() -> int:
    """Ask for as many open files as the system grants: packs of many repositories, and a socket a client. The number
    that it grants."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def use_one_heap() -> None:
    """Let no thread keep a heap of its own: after two pushes of a large history that saves a quarter of all memory."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # Only glibc has such heaps.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, LARGE_BLOCK)
        # Without this glibc would return the memory of each piece of an answer to the kernel, and fault it in again.
        mallopt(_TRIM_THRESHOLD, 2 * LARGE_BLOCK)
