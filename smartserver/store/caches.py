"""A cache in process, bounded in bytes, safe for threads, counted. Push and pull need no fulltexts of it."""

from __future__ import annotations

import threading
from typing import NamedTuple

from smartserver.meters import TEXT_CACHE, CacheMeters, here
from smartserver.records.cache import Cache

TEXT_BYTES = 64 << 20
"""Bytes of fulltexts kept: reading a tip's 1,580 records then decodes each base once (a whole history: 1.7 times)."""


class CachedText(NamedTuple):
    """A fulltext; `proved`: it was found to be what its key or check says."""

    text: bytes
    proved: bool


def _cost(kept: CachedText) -> int:
    return len(kept.text)


class TextCache:
    """Fulltexts of records, or blocks of indexes (`blocks`), the least recently used dropped first; one may serve
    several repositories."""

    def __init__(self, limit: int = TEXT_BYTES, meters: CacheMeters = TEXT_CACHE) -> None:
        """`limit`: bytes of text; 0 keeps nothing. `meters`: under which it is counted."""
        self._limit = limit
        self._meters = meters
        self._texts = Cache[bytes, CachedText](limit, _cost)
        self._lock = threading.Lock()

    def get(self, key: bytes) -> CachedText | None:
        """The text kept under `key`, or None."""
        with self._lock:
            found = self._texts.get(key)
        tally = here.tally
        if found is None:
            tally[self._meters.misses] += 1
            return None
        tally[self._meters.hits] += 1
        tally[self._meters.found] += len(found.text)
        return found

    def put(self, key: bytes, text: bytes, *, proved: bool) -> None:
        """Keep a text; one larger than half the limit is not kept, it would push out all others."""
        if len(text) > self._limit // 2:
            return
        with self._lock:
            self._texts.put(key, CachedText(text, proved))

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def size(self) -> int:
        """Bytes of the texts."""
        return self._texts.size
