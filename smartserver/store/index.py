"""The index of one pack: columns to find a record by its key and a segment by its revision, and the parents.

A cache of its pack, made again from it where it is missing. Little-endian, each column on a multiple of 8 bytes, so
that a mapped file is used as it lies. Rows are sorted by BLAKE2b-160 of (kind, key), copies by position. The base of a
row is the copy of its key at the lowest position of the repository, named by its key where that is in an earlier pack:
so no depth ever changes, and equal packs after equal packs have equal indexes, however they came about.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
import sys
from array import array
from typing import Literal, NamedTuple

from smartserver.errors import CorruptFile
from smartserver.records.model import Key, RevisionId
from smartserver.store.pack import TRAILER

MAGIC = b"hpss-idx"
VERSION = 1
DIGEST = 20
NO_BASE = 0xFFFFFFFF
EXTERNAL = 0x80000000
"""In the base column: the rest is an entry of the table of external bases."""
OUTSIDE = 0x80000000
"""In the parents: the rest is an entry of the table of outside parents."""
MOST_KNOWN = 1 << 14
"""Segments of an index whose revisions are listed in memory once they are asked for often: about 2 MB."""

HEADER = struct.Struct("<8sBBBx5IQ16s")
"""Magic, version, flags, fanout bits, a zero; records, segments, parent entries, external bases, outside parents;
length and hash of the pack."""
ONE_BYTE = tuple(bytes((kind,)) for kind in range(256))


class Row(NamedTuple):
    """What a record's own header does not say: how deep its base chain is."""

    depth: int = 0
    """Bases to be decoded before it."""
    chain_kib: int = 0
    """KiB of fulltext along the chain, its own included."""
    lineage: int = 0
    """The n of the k-ary base rule: versions of its path before it, as far as known."""


def record_digest(kind: int, key: Key) -> bytes:
    """What rows are sorted by."""
    return hashlib.blake2b(ONE_BYTE[kind] + key, digest_size=DIGEST).digest()


def kib(length: int) -> int:
    """What a text of `length` bytes adds to the size of a chain."""
    return (length + 1023) >> 10


def _cast(view: memoryview, form: _Format) -> memoryview:
    if form == "B" or sys.byteorder == "little":
        return view.cast(form)
    column = array(form, bytes(view))
    column.byteswap()
    return memoryview(column)


_Format = Literal["B", "I", "Q"]


class _Part(NamedTuple):
    """A column: its name, its `memoryview.cast` format, bytes of one item."""

    name: str
    format: _Format
    width: int


_COLUMNS = (
    _Part("fanout", "I", 4),
    _Part("digests", "B", DIGEST),
    _Part("header_offsets", "Q", 8),
    _Part("frame_offsets", "Q", 8),
    _Part("frame_lengths", "I", 4),
    _Part("lengths", "I", 4),
    _Part("bases", "I", 4),
    _Part("row_segments", "I", 4),
    _Part("chains", "I", 4),
    _Part("lineages", "I", 4),
    _Part("depths", "B", 1),
    _Part("segment_offsets", "Q", 8),
    _Part("id_offsets", "I", 4),
    _Part("by_id", "I", 4),
    _Part("parent_starts", "I", 4),
    _Part("parent_entries", "I", 4),
    _Part("external_offsets", "I", 4),
    _Part("outside_offsets", "I", 4),
)
_BLOBS = ("ids", "external_keys", "outside_ids")


def _counts(bits: int, rows: int, segments: int, parents: int, external: int, outside: int) -> list[int]:
    """Items of each of `_COLUMNS`."""
    tables = [segments + 1, segments + 1, segments, segments + 1, parents, external + 1, outside + 1]
    return [(1 << bits) + 1, *[rows] * 10, *tables]


class Index:
    """An opened index. Columns are public, read only; a row and a segment are numbers."""

    def __init__(self, view: memoryview | bytes, name: str) -> None:
        """`name`: the file's path, for messages.

        Raises:
            CorruptFile: not an index this release reads, or not what was written.
        """
        view = memoryview(view)
        self.name = name
        self.size = len(view)
        body = len(view) - TRAILER
        if body < HEADER.size:
            raise CorruptFile(name, len(view), f"{len(view)} bytes, an index has {HEADER.size + TRAILER} or more")
        magic, version, flags, bits, *counts, pack_length, pack_hash = HEADER.unpack_from(view)
        if magic != MAGIC:
            raise CorruptFile(name, 0, f"begins with {magic!r}, an index with {MAGIC!r}")
        if version != VERSION or flags:
            raise CorruptFile(name, 8, f"index version {version} flags {flags}, this release reads version {VERSION}")
        self.hash = bytes(view[body:])
        """The file's trailer, as the root names it."""
        if hashlib.blake2b(view[:body], digest_size=TRAILER).digest() != self.hash:
            raise CorruptFile(name, body, "the index does not have the hash it ends with")
        # From here on the bytes are those that were written: what follows finds a writer's mistake, not damage.
        self.records, self.segments, _, external, outside = counts
        self.pack_length: int = pack_length
        self.pack_hash: bytes = pack_hash
        at = HEADER.size
        columns: list[memoryview] = []
        for part, count in zip(_COLUMNS, _counts(bits, *counts), strict=True):
            stop = at + count * part.width
            if stop > body:
                raise CorruptFile(name, at, f"the column {part.name} of {count} items passes the end at {body}")
            columns.append(_cast(view[at:stop], part.format))
            at = (stop + 7) & ~7
        (self._fanout, self.digests, self.header_offsets, self.frame_offsets, self.frame_lengths, self.lengths) = (
            columns[:6]
        )
        (self.bases, self.row_segments, self.chains, self.lineages, self.depths, self.segment_offsets) = columns[6:12]
        (self._id_offsets, self._by_id, self.parent_starts, self.parent_entries) = columns[12:16]
        self._external_offsets, outside_offsets = columns[16:]
        blobs = []
        for title, offsets in zip(_BLOBS, (self._id_offsets, self._external_offsets, outside_offsets), strict=True):
            stop = at + offsets[-1]
            if stop > body:
                raise CorruptFile(name, at, f"the table {title} of {offsets[-1]} bytes passes the end at {body}")
            blobs.append(view[at:stop])
            at = (stop + 7) & ~7
        if at != body:
            raise CorruptFile(name, at, f"the tables end here, not at the trailer at {body}")
        self._ids, self._external_keys, outside_ids = blobs
        self.external_count: int = external
        self.outside = tuple(
            bytes(outside_ids[outside_offsets[entry] : outside_offsets[entry + 1]]) for entry in range(outside)
        )
        """Ids of parents that lie in earlier packs."""
        self._shift = 16 - bits
        self._asked = 0
        self._known: dict[RevisionId, int] | None = None

    def find(self, kind: int, key: Key) -> range:
        """The rows of that record, the lowest position first; none where it is not here."""
        return self.find_digest(record_digest(kind, key))

    def find_digest(self, digest: bytes) -> range:
        """As `find`, for a digest that is looked up in several packs."""
        bucket = (digest[0] << 8 | digest[1]) >> self._shift
        low = self._fanout[bucket]
        high = self._fanout[bucket + 1]
        if low == high:
            return range(0)
        # A bucket has about 16 rows: copying them out and searching in C beats bisecting in Python.
        rows = bytes(self.digests[low * DIGEST : high * DIGEST])
        at = rows.find(digest)
        while at % DIGEST:
            if at < 0:
                return range(0)
            at = rows.find(digest, at + 1)
        first = low + at // DIGEST
        stop = first + 1
        while stop < high and rows.startswith(digest, (stop - low) * DIGEST):
            stop += 1
        return range(first, stop)

    def digest(self, row: int) -> bytes:
        """BLAKE2b-160 of the row's kind and key."""
        return bytes(self.digests[row * DIGEST : (row + 1) * DIGEST])

    def row(self, row: int) -> Row:
        """Depth, chain and lineage of a row."""
        return Row(self.depths[row], self.chains[row], self.lineages[row])

    def external(self, entry: int) -> tuple[int, Key]:
        """Kind and key of a base that lies in an earlier pack."""
        raw = bytes(self._external_keys[self._external_offsets[entry] : self._external_offsets[entry + 1]])
        return raw[0], raw[1:]

    def revision(self, segment: int) -> RevisionId:
        """The id of a segment's revision."""
        return bytes(self._ids[self._id_offsets[segment] : self._id_offsets[segment + 1]])

    def segment_of(self, revision: RevisionId) -> int | None:
        """The segment of a revision, or None."""
        if self._known is None:
            # Bisecting for an id takes as long as listing 16 of them. A large push asks every pack for every revision.
            self._asked += 1
            if self.segments <= MOST_KNOWN and self._asked * 16 > self.segments:
                self._known = {self.revision(segment): segment for segment in range(self.segments)}
        if self._known is not None:
            return self._known.get(revision)
        by_id = self._by_id
        at = bisect.bisect_left(by_id, revision, key=self.revision)
        if at < self.segments and self.revision(by_id[at]) == revision:
            return by_id[at]
        return None

    def parents(self, segment: int) -> list[int]:
        """Parents that are not absent: a local segment, or `OUTSIDE` and an entry of `outside`."""
        return self.parent_entries[self.parent_starts[segment] : self.parent_starts[segment + 1]].tolist()
