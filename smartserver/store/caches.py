"""A cache in process, bounded in bytes, safe for threads, with counters. Push and pull need no fulltexts of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

TEXT_BYTES = 64 << 20
"""Bytes of fulltexts kept: reading a tip's 1,580 records then decodes each base once (a whole history: 1.7 times)."""


class CachedText(NamedTuple):
    """A fulltext; `proved`: it was found to be what its key or check says."""

    text: bytes
    proved: bool


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
        self._texts: OrderedDict[bytes, CachedText] = OrderedDict()
        self._size = 0
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
            self._texts.move_to_end(key)
            return found

    def put(self, key: bytes, text: bytes, *, proved: bool) -> None:
        """Keep a text; one larger than half the limit is not kept, it would push out all others."""
        if len(text) > self._limit // 2:
            return
        with self._lock:
            old = self._texts.pop(key, None)
            if old is not None:
                self._size -= len(old.text)
            self._texts[key] = CachedText(text, proved)
            self._size += len(text)
            while self._size > self._limit:
                _, dropped = self._texts.popitem(last=False)
                self._size -= len(dropped.text)
                self._evictions += 1

    def counts(self) -> CacheCounts:
        """The counters, taken at one moment."""
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, len(self._texts), self._size)
