"""`CommonCache`: texts and blocks that one worker has decoded, for the other workers and for its successor.

The supervisor makes the memory before it forks. The memory has no file, so nothing can truncate it under a reader, and
no other process can open it. Each worker writes to its own ring and reads all rings. No process waits for another: an
entry has a hash of its key and bytes, and a reader copies the entry before it compares the hash. So a reader gets the
right bytes or none, even if a writer was killed or is overwriting the entry.
"""

from __future__ import annotations

import mmap
import struct
import threading
from hashlib import blake2b
from typing import Final

from smartserver.meters import COMMON_CACHE, here

_HEAD: Final = struct.Struct("<Q")
"""The position of the next entry in a ring."""
_PLACE: Final = struct.Struct("<8sQQ")
"""The hash of a key, and the offset and length of its entry."""
_CHECK: Final = 16
"""The number of bytes of the hash that precedes the value of an entry."""
_SHARE: Final = 2048
"""The number of bytes of a ring for each place in its table."""
_LEAST: Final = 1 << 20
"""The least bytes of a ring."""


class _Ring:
    """A worker's part of the memory: the position of the next entry, a table of places by hashes of keys, and
    entries."""

    def __init__(self, memory: mmap.mmap, begin: int, size: int) -> None:
        self._memory = memory
        self._begin = begin
        self._places = 1 << (size // _SHARE).bit_length() - 1
        self._first = begin + _HEAD.size + self._places * _PLACE.size
        self._stop = begin + size
        self.most = (self._stop - self._first) // 4
        """The most bytes of an entry."""

    def get(self, digest: bytes, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
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
        """Write an entry over the oldest ones, and after it the place of the entry. Only one process may call this."""
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
        """Return the offset of one of the two places in the table that a key may use."""
        number = int.from_bytes(digest[part : part + 4], "little") & self._places - 1
        return self._begin + _HEAD.size + number * _PLACE.size


class CommonCache:
    """The cache in memory that all workers share."""

    def __init__(self, size: int, workers: int) -> None:
        """`size`: bytes of all rings together; no worker has less than a megabyte."""
        each = max(size // workers & ~7, _LEAST)
        memory = mmap.mmap(-1, each * workers)
        self._rings = [_Ring(memory, number * each, each) for number in range(workers)]
        self._own = self._rings[0]
        self._others = self._rings[1:]
        self._lock = threading.Lock()

    def belong_to(self, worker: int) -> None:
        """Make this process write to the ring of a worker, whose number counts from 0. Only one process at a time may
        write to a ring."""
        self._own = self._rings[worker]
        self._others = [ring for ring in self._rings if ring is not self._own]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key of at most 64 bytes; None if no worker has stored it, or it was overwritten."""
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
        """Keep the value of a key. A value that is larger than a quarter of a worker's ring is not kept."""
        if len(value) + _CHECK <= self._own.most:
            with self._lock:
                self._own.put(_digest(key), key, value)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=8).digest()


def _check(key: bytes, value: bytes) -> bytes:
    return blake2b(value, digest_size=_CHECK, key=key).digest()
