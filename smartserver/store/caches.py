"""A cache in process, bounded in bytes, safe for threads, with counters. Push and pull need no fulltexts of it."""

from __future__ import annotations

import threading
from typing import NamedTuple

from smartserver.records.cache import Cache

TEXT_BYTES = 64 << 20
"""Bytes of fulltexts kept: reading a tip's 1,580 records then decodes each base once (a whole history: 1.7 times)."""


class CachedText(NamedTuple):
    """A fulltext; `proved`: it was found to be what its key or check says."""

    text: bytes
    proved: bool


def _cost(kept: CachedText) -> int:
    return len(kept.text)


class CacheCounts(NamedTuple):
    """What a cache did since it was made."""

    hits: int
    misses: int
    evictions: int
    texts: int
    size: int


class TextCache:
    """Fulltexts of records, or blocks of indexes (`blocks`), the least recently used dropped first; one may serve
    several repositories."""

    def __init__(self, limit: int = TEXT_BYTES) -> None:
        """`limit`: bytes of text; 0 keeps nothing."""
        self._limit = limit
        self._texts = Cache[bytes, CachedText](limit, _cost)
        self._hits = self._misses = self._evictions = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> CachedText | None:
        """The text kept under `key`, or None."""
        with self._lock:
            found = self._texts.get(key)
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            return found

    def put(self, key: bytes, text: bytes, *, proved: bool) -> None:
        """Keep a text; one larger than half the limit is not kept, it would push out all others."""
        if len(text) > self._limit // 2:
            return
        with self._lock:
            self._evictions += self._texts.put(key, CachedText(text, proved))

    def counts(self) -> CacheCounts:
        """The counters, taken at one moment."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, len(self._texts), self._texts.size)
