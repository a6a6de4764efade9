"""The counters and timers of this process. Each is declared once, here, with its unit and its help text.

Each thread counts in a list of its own, so nothing is locked, and a request that runs in one thread sees its own cost
and no other's. Code counts in one line, which takes some 40 nanoseconds:

    here.tally[READS] += 1

Timers count nanoseconds. The counts of a thread stay when it ends: the next new thread continues its list. A worker
process counts for itself, and its counts end with it.
"""

from __future__ import annotations

import enum
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Final, NewType

import msgspec

NANOSECONDS: Final = 1_000_000_000


class Unit(enum.StrEnum):
    """The unit of a meter; a count of events has none."""

    EVENTS = ""
    BYTES = "bytes"
    SECONDS = "seconds"
    """Seconds, which are counted in nanoseconds."""


class Meter(msgspec.Struct, frozen=True):
    """A counter or a timer."""

    short: str
    unit: Unit
    help: str
    group: str

    @property
    def name(self) -> str:
        """The unique name of the meter, which includes the unit."""
        return f"{self.short}_{self.unit}" if self.unit else self.short


Index = NewType("Index", int)
"""The index of a meter in `METERS`, and of its count in the tally of each thread."""

METERS: Final[list[Meter]] = []
"""All meters, in the order of the tallies."""


def _meter(group: str, name: str, unit: Unit, says: str) -> Index:
    METERS.append(Meter(name, unit, says, group))
    return Index(len(METERS) - 1)


_FILES = "Files of the store"
FILES_READ: Final = _meter(_FILES, "files_opened_to_read", Unit.EVENTS, "Files opened to read, or read whole.")
FILES_WRITTEN: Final = _meter(_FILES, "files_opened_to_write", Unit.EVENTS, "Files created, or opened to append.")
READS: Final = _meter(_FILES, "file_reads", Unit.EVENTS, "Reads of files.")
BYTES_READ: Final = _meter(
    _FILES, "file_read", Unit.BYTES, "Bytes of those reads. The system reads a mapped file, so its bytes are missing."
)
SEEKS: Final = _meter(
    _FILES, "file_seeks", Unit.EVENTS, "Reads that do not begin where the read before them in the same file ended."
)
WRITES: Final = _meter(_FILES, "file_writes", Unit.EVENTS, "Writes to files.")
BYTES_WRITTEN: Final = _meter(_FILES, "file_written", Unit.BYTES, "Bytes of those writes.")
SYNCS: Final = _meter(_FILES, "file_syncs", Unit.EVENTS, "Syncs of files and folders to the disk.")
RENAMES: Final = _meter(_FILES, "file_renames", Unit.EVENTS, "Files and folders renamed.")
DELETIONS: Final = _meter(_FILES, "file_deletions", Unit.EVENTS, "Files and folders deleted.")
LISTINGS: Final = _meter(_FILES, "folder_listings", Unit.EVENTS, "Folders listed.")
STATS: Final = _meter(_FILES, "file_stats", Unit.EVENTS, "Questions for the kind and size of a file.")


class CacheMeters(msgspec.Struct, frozen=True):
    """The meters of one cache."""

    hits: Index
    misses: Index
    found: Index
    """The bytes that were found."""


def _cache(name: str, what: str) -> CacheMeters:
    group = "Caches"
    return CacheMeters(
        _meter(group, f"{name}_hits", Unit.EVENTS, f"{what} found in the cache."),
        _meter(group, f"{name}_misses", Unit.EVENTS, f"{what} that were not in the cache."),
        _meter(group, f"{name}_found", Unit.BYTES, f"Bytes of {what[0].lower()}{what[1:]} found in the cache."),
    )


TEXT_CACHE: Final = _cache("text_cache", "Texts of records")
BLOCK_CACHE: Final = _cache("block_cache", "Blocks of indexes")
HEADER_CACHE: Final = _cache("header_cache", "Headers of revisions, in blocks,")

MEMCACHED: Final = _cache("memcached", "Texts of files in memcached")
MEMCACHED_FAILURES: Final = _meter(
    "Caches", "memcached_failures", Unit.EVENTS, "Times that memcached did not answer, or not as it should."
)
COMMON_CACHE: Final = _cache("common_cache", "Texts and log blocks in the memory that workers share")

_COMPRESSION = "Compression of records and of bulk streams"
COMPRESSED: Final = _meter(_COMPRESSION, "compressions", Unit.EVENTS, "Records compressed, or tried to.")
COMPRESSED_IN: Final = _meter(_COMPRESSION, "compression_in", Unit.BYTES, "Bytes of records and streams to compress.")
COMPRESSED_OUT: Final = _meter(_COMPRESSION, "compression_out", Unit.BYTES, "Bytes they were compressed to.")
COMPRESSION_TIME: Final = _meter(_COMPRESSION, "compression", Unit.SECONDS, "Time to compress them.")
DECOMPRESSED: Final = _meter(_COMPRESSION, "decompressions", Unit.EVENTS, "Records decompressed.")
DECOMPRESSED_IN: Final = _meter(
    _COMPRESSION, "decompression_in", Unit.BYTES, "Bytes of records and streams to decompress."
)
DECOMPRESSED_OUT: Final = _meter(_COMPRESSION, "decompression_out", Unit.BYTES, "Bytes they were decompressed to.")

_HASHES = "Proof of records"
HASHED: Final = _meter(_HASHES, "hashed", Unit.EVENTS, "Records hashed, to prove that they are what their key says.")
HASHED_BYTES: Final = _meter(_HASHES, "hashed", Unit.BYTES, "Bytes of these records.")

_PUSHES = "Pushes"
STORED: Final = _meter(_PUSHES, "revisions_stored_already", Unit.EVENTS, "Revisions that came and were stored already.")
STORED_BYTES: Final = _meter(_PUSHES, "revisions_stored_already", Unit.BYTES, "Bytes of their segments.")

_WIRE = "Connections"
CONNECTIONS: Final = _meter(_WIRE, "connections", Unit.EVENTS, "Connections opened, by clients and to a server.")
TRIPS: Final = _meter(
    _WIRE, "round_trips", Unit.EVENTS, "Times a client received something after it had sent something."
)
BYTES_RECEIVED: Final = _meter(_WIRE, "received", Unit.BYTES, "Bytes of the protocol received.")
BYTES_SENT: Final = _meter(_WIRE, "sent", Unit.BYTES, "Bytes of the protocol sent.")


Counts = Sequence[int]
"""A count for each of `METERS`."""

NOTHING: Final[Counts] = (0,) * len(METERS)

_tallies: Final[list[list[int]]] = []
_free_tallies: Final[list[list[int]]] = []
"""The tallies of threads that have ended."""


class _Lease:
    """Frees a tally for another thread when its own thread ends."""

    def __init__(self, tally: list[int]) -> None:
        self._tally = tally

    def __del__(self, leave: Callable[[list[int]], None] = _free_tallies.append) -> None:
        leave(self._tally)


class _Here(threading.local):
    """The calling thread's tally. `__init__` runs once in each thread."""

    def __init__(self) -> None:
        try:
            self.tally = _free_tallies.pop()
        except IndexError:
            self.tally = list(NOTHING)
            _tallies.append(self.tally)
        self._lease = _Lease(self.tally)


here: Final = _Here()


def counted_here() -> Counts:
    """Return the counts of this thread so far."""
    return here.tally.copy()


def counted() -> Counts:
    """Return the counts of all threads so far."""
    return list(map(sum, zip(*list(_tallies), strict=True)))


def since(later: Counts, earlier: Counts) -> Counts:
    """Subtract earlier counts from later ones, meter by meter."""
    return list(map(operator.sub, later, earlier))


def together(one: Counts, other: Counts) -> Counts:
    """Add two sequences of counts, meter by meter."""
    return list(map(operator.add, one, other))
