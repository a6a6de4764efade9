"""Caches in process, each bounded in bytes, safe for threads, counted. Push and pull need no fulltexts of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from smartserver.meters import HEADER_CACHE, TEXT_CACHE, CacheMeters, here
from smartserver.records.cache import Cache

TEXT_BYTES = 64 << 20
"""Bytes of fulltexts kept: reading a tip's 1,580 records then decodes each base once (a whole history: 1.7 times)."""

OF_TEXT = 300
"""Bytes that Python takes for an entry besides its text and meta: key, tuple, and place in the cache."""

OF_ROW = 33
"""Bytes that Python takes for an object of bytes."""

HEADER_BYTES = 32 << 20
"""Bytes of what a log says of revisions, of some 150,000."""

V = TypeVar("V")


class SharedCache(Cache[bytes, V]):
    """A `Cache` for all threads, which counts; one may serve several repositories."""

    def __init__(self, limit: int, cost: Callable[[V], int], meters: CacheMeters) -> None:
        """`limit`: 0 keeps nothing. `meters`: under which it is counted."""
        super().__init__(limit, cost)
        self._meters = meters
        self._lock = threading.Lock()

    def get(self, key: bytes) -> V | None:
        """The value kept under `key`, or None."""
        # A dozen times for each record, so without the lock: Python holds its own during either call, which hashes and
        # compares bytes in C.
        values, tally = self._values, here.tally
        try:
            found = values[key]
            values.move_to_end(key)
        except KeyError:
            tally[self._meters.misses] += 1
            return None
        tally[self._meters.hits] += 1
        tally[self._meters.found] += self._cost(found)
        return found

    def put(self, key: bytes, value: V, *, spare: bool = False) -> int:
        """Keep a value; one larger than half the limit is not kept, it would push out all others. The rest is as of
        `Cache.put`."""
        if not self.limit or not self.takes(self._cost(value)):
            return 0
        with self._lock:
            return super().put(key, value, spare=spare)

    def takes(self, cost: int) -> bool:
        """Whether a value of that cost is kept."""
        return cost <= self.limit // 2

    def resize(self, limit: int) -> None:
        """Give it another limit, and nothing in it."""
        with self._lock:
            self.limit = limit
            self.clear()


class CachedText(NamedTuple):
    """A fulltext and its meta; `proved`: it was found to be what its key or check says."""

    text: bytes
    proved: bool
    meta: bytes = b""


class TextCache(SharedCache[CachedText]):
    """Fulltexts of records."""

    def __init__(self, limit: int = TEXT_BYTES) -> None:
        super().__init__(limit, lambda kept: len(kept.text) + len(kept.meta) + OF_TEXT, TEXT_CACHE)


Block = tuple[bytes | None, ...]
"""What a log says of revisions that lie side by side, encoded: empty of one that it does not show, None where it was
not read yet."""


def cost_of_block(block: Block) -> int:
    """Its bytes, and those of Python's objects."""
    return 8 * len(block) + sum(len(row) + OF_ROW for row in block if row is not None)


HEADERS: Final = SharedCache[Block](HEADER_BYTES, cost_of_block, HEADER_CACHE)
"""Those of all repositories of the process, by form, pack and place."""
