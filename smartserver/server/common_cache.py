"""`CommonCache`: what one worker has decoded is there for the others, and for the one that takes its place.

It is memory that the supervisor makes before it forks: it has no file, so nothing can cut it short under a reader, and
nobody else can open it. Each worker writes to a ring of its own and reads those of all. No process waits for another:
an entry has a hash of its key and bytes, and a reader copies it before it compares. So a reader gets the right bytes or
none, whatever a writer that was killed has left, and while another entry is written over this one.
"""

from __future__ import annotations

import mmap
import struct
import threading
from hashlib import blake2b
from typing import Final

from smartserver.meters import COMMON_CACHE, here

_HEAD: Final = struct.Struct("<Q")
"""The position at which a ring goes on."""
_PLACE: Final = struct.Struct("<8sQQ")
"""The hash of a key, where its entry is, and how long that is."""
_CHECK: Final = 16
"""Bytes of the hash before the value of an entry."""
_SHARE: Final = 2048
"""Bytes of a ring for each place in its table."""
_LEAST: Final = 1 << 20
"""Bytes of a ring."""


class _Ring:
    """A worker's part of the memory: where it goes on, a table of places by hashes of keys, and entries."""

    def __init__(self, memory: mmap.mmap, begin: int, size: int) -> None:
        self._memory = memory
        self._begin = begin
        self._places = 1 << (size // _SHARE).bit_length() - 1
        self._first = begin + _HEAD.size + self._places * _PLACE.size
        self._stop = begin + size
        self.most = (self._stop - self._first) // 4
        """Bytes of an entry."""

    def get(self, digest: bytes, key: bytes) -> bytes | None:
        """The value of a key."""
        memory = self._memory
        for table in (self._table(digest, 0), self._table(digest, 4)):
            of, at, length = _PLACE.unpack_from(memory, table)
            if of != digest or length < _CHECK or not self._first <= at <= self._stop - length:
                continue
            value = memory[at + _CHECK : at + length]
            if memory[at : at + _CHECK] == _check(key, value):
                return value
        return None

    def put(self, digest: bytes, key: bytes, value: bytes) -> None:
        """Write an entry over the oldest ones, then its place; for one process alone."""
        memory = self._memory
        (at,) = _HEAD.unpack_from(memory, self._begin)
        length = _CHECK + len(value)
        if not self._first <= at <= self._stop - length:
            at = self._first
        memory[at : at + length] = _check(key, value) + value
        tables = self._table(digest, 0), self._table(digest, 4)
        taken = [_PLACE.unpack_from(memory, table)[2] for table in tables]
        _PLACE.pack_into(memory, tables[1] if taken[0] and not taken[1] else tables[0], digest, at, length)
        _HEAD.pack_into(memory, self._begin, at + length)

    def _table(self, digest: bytes, part: int) -> int:
        """The table that has the place of a key: one of two."""
        number = int.from_bytes(digest[part : part + 4], "little") & self._places - 1
        return self._begin + _HEAD.size + number * _PLACE.size


class CommonCache:
    """The memory of all workers."""

    def __init__(self, size: int, workers: int) -> None:
        """`size`: bytes in all; no worker has less than a megabyte."""
        each = max(size // workers & ~7, _LEAST)
        memory = mmap.mmap(-1, each * workers)
        self._rings = [_Ring(memory, number * each, each) for number in range(workers)]
        self._own = self._rings[0]
        self._others = self._rings[1:]
        self._lock = threading.Lock()

    def belong_to(self, worker: int) -> None:
        """Write as this worker, by its number from 0. Only one process does so at a time."""
        self._own = self._rings[worker]
        self._others = [ring for ring in self._rings if ring is not self._own]

    def get(self, key: bytes) -> bytes | None:
        """The value of a key of at most 64 bytes, if some worker has put it there and nothing was written over it."""
        digest, tally = _digest(key), here.tally
        for ring in (self._own, *self._others):
            value = ring.get(digest, key)
            if value is not None:
                tally[COMMON_CACHE.hits] += 1
                tally[COMMON_CACHE.found] += len(value)
                return value
        tally[COMMON_CACHE.misses] += 1
        return None

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value that is right for its key; one over a quarter of a worker's part is not kept."""
        if len(value) + _CHECK <= self._own.most:
            with self._lock:
                self._own.put(_digest(key), key, value)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=8).digest()


def _check(key: bytes, value: bytes) -> bytes:
    return blake2b(value, digest_size=_CHECK, key=key).digest()
