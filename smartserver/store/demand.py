"""`Demand`: what a cache of another size would have found, so that sizes are chosen by what is asked, and not guessed.

One key in 16 is followed, chosen by its hash, and what is found of them stands for all (SHARDS: Waldspurger, Park,
Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*, FAST 2015). The few hottest keys may or may not be among
them. The difference between all uses and 16 times the followed ones corrects for that: it is added to the smallest
cache, as any cache has these keys (their SHARDS-adj). A cache that drops the least recently used value
finds one that is asked for again if the values used since then fit in it. Their bytes are the sum of a range of a
Fenwick tree, in the order of the last use.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

RATE: Final = 16
"""One key in so many is followed."""
SIZES: Final = tuple(int((1 << 20) * 2 ** (step / 2)) for step in range(27))
"""Bytes of the caches that are looked at: from 1 MiB to 8 GiB."""
FOLLOWED: Final = 1 << 14
"""Keys that are followed at most; the one that was used longest ago is forgotten first."""
NEAR_BEST: Final = 0.95
"""The share of what the largest cache finds that is enough."""


class Size(NamedTuple):
    """What a cache of a size would have found."""

    size: int
    """Bytes."""
    hits: int
    found: int
    """Bytes, which need not be decoded again."""


class Demand:
    """Follows the use of one cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[bytes, int] = {}
        """When each key that is followed was used last; the oldest first."""
        self._costs: dict[bytes, int] = {}
        self._tree = [0] * (2 * FOLLOWED + 1)
        """The costs by time of the last use, as a Fenwick tree."""
        self._now = 0
        self._hits = [0.0] * len(SIZES)
        self._found = [0.0] * len(SIZES)
        self._uses = self._bytes = 0.0
        """All uses, less those that are followed times `RATE`; and the bytes of these."""

    def use(self, key: bytes, cost: int) -> None:
        """A value was asked for, whether it was in the cache or not."""
        self._uses += 1  # Two threads may lose one.
        self._bytes += cost
        if not crc32(key) % RATE:
            self._follow(key, cost)

    def _follow(self, key: bytes, cost: int) -> None:
        with self._lock:
            self._uses -= RATE
            self._bytes -= RATE * cost
            before = self._times.pop(key, None)
            if before is not None:
                beyond = RATE * (self._sum(self._now) - self._sum(before)) + cost
                number = next((number for number, size in enumerate(SIZES) if size >= beyond), None)
                if number is not None:
                    self._hits[number] += RATE
                    self._found[number] += RATE * cost
                self._add(before, -self._costs[key])
            elif len(self._times) >= FOLLOWED:
                oldest = next(iter(self._times))
                self._add(self._times.pop(oldest), -self._costs.pop(oldest))
            if self._now >= 2 * FOLLOWED:
                self._renumber()
            self._now += 1
            self._times[key], self._costs[key] = self._now, cost
            self._add(self._now, cost)

    def sizes(self) -> list[Size]:
        """What caches of all `SIZES` would have found."""
        found: list[Size] = []
        with self._lock:
            hits, size_found = self._uses, self._bytes
            for size, more, more_found in zip(SIZES, self._hits, self._found, strict=True):
                hits += more
                size_found += more_found
                found.append(Size(size, max(round(hits), 0), max(round(size_found), 0)))
        return found

    def fade(self) -> None:
        """Let what was counted so far count half."""
        with self._lock:
            self._hits = [each / 2 for each in self._hits]
            self._found = [each / 2 for each in self._found]
            self._uses /= 2
            self._bytes /= 2

    def _renumber(self) -> None:
        """Count the times from 1 again, in the same order."""
        self._tree = [0] * len(self._tree)
        self._now = 0
        for key in self._times:
            self._now += 1
            self._times[key] = self._now
            self._add(self._now, self._costs[key])

    def _add(self, time: int, cost: int) -> None:
        while time < len(self._tree):
            self._tree[time] += cost
            time += time & -time

    def _sum(self, time: int) -> int:
        total = 0
        while time:
            total += self._tree[time]
            time &= time - 1
        return total


def best(sizes: Sequence[Size], most: int) -> int:
    """The smallest size that finds nearly as much as the largest that is allowed.

    `most`: bytes. Without anything found, the smallest of all.
    """
    allowed = [each for each in sizes if each.size <= most] or sizes[:1]
    return next(each.size for each in allowed if each.found >= NEAR_BEST * allowed[-1].found)
