"""The sizes of a server's caches, chosen by the server's load: `serve --memory-cache-size auto`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from smartserver.store.blocks import CACHED
from smartserver.store.caches import HEADERS, Demand, TextCache, best

EVERY: Final = 5.0
"""Seconds between two decisions about the sizes."""
FADE: Final = 24
"""The number of decisions after which the counts of all earlier lookups are halved."""
SHARE: Final = 4
"""The caches of all workers together take at most one part in `SHARE` of the machine's free memory."""
LEAST: Final = 16 << 20
"""The least bytes that all caches of a process may take, even if little memory is free."""
START: Final = 128 << 20
"""The most bytes that all caches of a process may take at the start, if memory suffices. Half of them are for texts."""


def divide(texts: TextCache, size: int) -> None:
    """Divide `size` bytes among the caches of this process: half for texts, a quarter each for blocks of indexes and
    headers of revisions."""
    texts.resize(size // 2)
    CACHED.resize(size // 4)
    HEADERS.resize(size // 4)


def follow(texts: TextCache) -> None:
    """Start to count the hits that caches of other sizes would have."""
    texts.demand, HEADERS.demand = Demand(), Demand()


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that are free both on the machine and in the control groups of this process; None if it is
    unknown."""
    found: list[int] = []
    with contextlib.suppress(OSError, StopIteration, ValueError, IndexError):
        lines = (root / "proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    with contextlib.suppress(OSError, IndexError):
        own = (root / "proc/self/cgroup").read_text().splitlines()[-1].partition("::")[2]
        top = root / "sys/fs/cgroup"
        group = top / own.strip("/")
        for parent in (group, *group.parents):
            if parent == top:
                break
            found += _free_in(parent)
    return max(min(found), 0) if found else None


def _free_in(group: Path) -> list[int]:
    """Return the bytes that a control group has left, as a list of one number. The list is empty if the group has no
    limit. File pages count as free, because the kernel can drop them."""
    try:
        most = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
        lines = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        pages = sum(int(size) for name, size in lines if name in ("active_file", "inactive_file"))
    except (OSError, ValueError):
        return []
    return [most - used + pages]


class AutoSize:
    """Chooses the sizes of the caches of one process, from time to time."""

    def __init__(self, texts: TextCache, workers: int, free: Callable[[], int | None] = free_memory) -> None:
        """`workers`: the number of processes that share the memory."""
        follow(texts)
        self._texts = texts
        self._workers = workers
        self._free = free
        self._decisions = 0
        self.decide()

    def decide(self) -> None:
        """Give each cache the smallest size with nearly as many hits as the largest size that fits into free memory.
        While memory suffices, no cache gets less than its share of `START`."""
        texts = self._texts
        free = self._free()
        own = texts.size + CACHED.size + HEADERS.size
        room = START if free is None else (free // self._workers + own) // SHARE
        if room < START:
            divide(texts, max(room, LEAST))
            return
        sizes = texts.demand.sizes() if texts.demand is not None else []
        size_of_texts = max(START // 2, best(sizes, room // 2))
        headers = HEADERS.demand.sizes() if HEADERS.demand is not None else []
        texts.resize(size_of_texts)
        HEADERS.resize(max(START // 4, best(headers, room // 4)))
        CACHED.resize(min(max(START // 4, size_of_texts // 2), room // 4))  # More texts mean more lookups.
        self._decisions += 1
        if self._decisions % FADE == 0:
            for cache in (texts, HEADERS):
                if cache.demand is not None:
                    cache.demand.fade()
