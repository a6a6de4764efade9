"""`CommonCounts`: the counts of each worker of a server, in memory that all workers read.

A worker writes its counts once a second, each time over the older of two copies. A copy has a number and a hash, so
that readers ignore a copy that is half written. A worker that replaces another one adds its counts to those of its
predecessor.
"""

from __future__ import annotations

import logging
import mmap
import struct
from hashlib import blake2b
from typing import Final

import msgspec

from smartserver.server.request_meters import ServerCounts

_HEAD: Final = struct.Struct("<QQ16s")
"""The number of a copy, its length, and its hash."""
_COPY: Final = 256 << 10
"""The most bytes of a copy: enough for a few hundred counts by verb and outcome."""

log = logging.getLogger("smartserver")

EVERY: Final = 1.0
"""Seconds between two copies."""

_counts = msgspec.msgpack.Decoder(ServerCounts)


class CommonCounts:
    """The shared memory with the counts. It is created before the workers are forked."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._memory = mmap.mmap(-1, workers * 2 * _COPY)
        self._before = ServerCounts()
        self._number = 0
        self._own = 0
        self._is_full = False

    def belong_to(self, worker: int) -> None:
        """Make this process write the counts of a worker, whose number counts from 0. Only one process at a time may do
        so for a worker."""
        self._own = worker
        self._number, self._before = self._read(worker)
        self._before.open, self._before.caches = 0, {}

    def write(self, counts: ServerCounts) -> None:
        """Write the counts of this process, added to those of the workers that it has replaced."""
        content = msgspec.msgpack.encode(self._before + counts)
        if _HEAD.size + len(content) > _COPY:
            if not self._is_full:
                said = "the counts of a worker have %d bytes, expected at most %d: /metrics no longer updates them"
                log.error(said, len(content), _COPY - _HEAD.size)
            self._is_full = True
            return
        self._number += 1
        at = self._place(self._own, self._number)
        self._memory[at + _HEAD.size : at + _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._memory, at, self._number, len(content), _hash(self._number, content))

    def read(self) -> ServerCounts:
        """Return the sum of the counts of all workers, including this one."""
        found = ServerCounts()
        for worker in range(self._workers):
            found += self._read(worker)[1]
        return found

    def _read(self, worker: int) -> tuple[int, ServerCounts]:
        """Return the number of a worker's newer copy, and its counts."""
        newest, found = 0, b""
        for copy in range(2):
            at = self._place(worker, copy)
            number, length, check = _HEAD.unpack_from(self._memory, at)
            content = self._memory[at + _HEAD.size : at + _HEAD.size + min(length, _COPY)]
            if number > newest and _hash(number, content) == check:
                newest, found = number, content
        return newest, _counts.decode(found) if found else ServerCounts()

    @staticmethod
    def _place(worker: int, number: int) -> int:
        return (2 * worker + number % 2) * _COPY


def _hash(number: int, content: bytes) -> bytes:
    return blake2b(content, digest_size=16, salt=number.to_bytes(8, "little")).digest()
