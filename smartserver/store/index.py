"""The index of one pack: columns to find a record by its key and a segment by its revision, and the parents.

An index is a cache of its pack: if it is missing or damaged, it is rebuilt from the pack. Numbers are little-endian,
and each column begins at a multiple of 8 bytes; only the needed blocks (`blocks`) are read. Rows are sorted by
BLAKE2b-160 of (kind, key), copies by position. The base of a row is the copy at the lowest position of the repository;
if that is in an earlier pack, the row refers to it by key. So no depth ever changes, and equal packs after equal packs
always have equal indexes.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, overload

from smartserver.errors import CorruptFile
from smartserver.records.model import Key, RevisionId, made
from smartserver.store.blocks import Blocks

MAGIC = b"hpss-idx"
VERSION = 1
DIGEST = 20
NO_BASE = 0xFFFFFFFF
EXTERNAL = 0x80000000
"""The bit in the base column that marks an entry of the table of external bases."""
OUTSIDE = 0x80000000
"""The bit in the parents that marks an entry of the table of outside parents."""
MOST_KNOWN = 1 << 14
"""The most segments of an index whose revisions are listed in memory after many lookups: about 2 MB."""

STRIDE = 4096
"""The number of items that are read at once when a whole column is read."""

HEADER = struct.Struct("<8sBBBx5IQ16s")
"""Magic, version, flags, fanout bits, a zero; records, segments, parent entries, external bases, outside parents;
length and hash of the pack."""
_SPAN = struct.Struct("<2I")
ONE_BYTE = tuple(bytes((kind,)) for kind in range(256))


class Row(NamedTuple):
    """The numbers about the base chain of a record, which its own header does not have."""

    depth: int = 0
    """The number of bases to decode before the record."""
    chain_kib: int = 0
    """The KiB of fulltext along the chain, including the record's own."""
    lineage: int = 0
    """The number of earlier versions of the record's path, as far as known. The base is chosen by it."""


def record_digest(kind: int, key: Key) -> bytes:
    """Return the digest by which rows are sorted."""
    return name_digest(ONE_BYTE[kind] + key)


def name_digest(name: bytes) -> bytes:
    """Return the `record_digest` of a name: the byte of the kind and the key."""
    return hashlib.blake2b(name, digest_size=DIGEST).digest()


def kib(length: int) -> int:
    """Return the KiB that a text of `length` bytes adds to the size of a chain."""
    return (length + 1023) >> 10


ROW = struct.Struct("<QQIIIIIIB")
"""The layout of an `IndexRow`."""


class IndexRow(NamedTuple):
    """The row of one copy of a record. Offsets count from the start of the pack."""

    header_offset: int
    frame_offset: int
    frame_length: int
    length: int
    """The length of the record's fulltext in bytes."""
    base: int
    """The row of the base in this index, or `EXTERNAL` plus an entry of the external bases, or `NO_BASE`."""
    segment: int
    chain_kib: int
    lineage: int
    depth: int


_COLUMNS = (
    ("fanout", 4),
    ("digests", DIGEST),
    ("rows", ROW.size),
    ("segment offsets", 8),
    ("id offsets", 4),
    ("by id", 4),
    ("parents' starts", 4),
    ("parents", 4),
    ("external offsets", 4),
    ("outside offsets", 4),
)
"""The names of the columns, and the bytes of an item of each."""
_BLOBS = ("ids", "external_keys", "outside_ids")


def _counts(bits: int, rows: int, segments: int, parents: int, external: int, outside: int) -> list[int]:
    """Return the number of items in each of `_COLUMNS`."""
    tables = [segments + 1, segments + 1, segments, segments + 1, parents, external + 1, outside + 1]
    return [(1 << bits) + 1, rows, rows, *tables]


class Column(Sequence[int]):
    """A column of numbers in an index. Each number is read when it is accessed."""

    def __init__(self, blocks: Blocks, at: int, count: int, form: Literal["I", "Q"]) -> None:
        self._blocks = blocks
        self._at = at
        self._count = count
        self._form = form
        self._width = 4 if form == "I" else 8

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, item: int) -> int: ...
    @overload
    def __getitem__(self, item: slice) -> array[int]: ...
    def __getitem__(self, item: int | slice) -> int | array[int]:
        if isinstance(item, slice):
            start, stop, _ = item.indices(self._count)
            return self._array(start, max(start, stop))
        if not 0 <= item < self._count:
            raise IndexError(f"item {item} of {self._count}")
        return int.from_bytes(self._blocks.read(self._at + item * self._width, self._width), "little")

    def span(self, item: int) -> tuple[int, int]:
        """Return an item and the next one, in a column of 4-byte numbers."""
        if not 0 <= item < self._count - 1:
            raise IndexError(f"items {item} and {item + 1} of {self._count}")
        start, stop = _SPAN.unpack(self._blocks.read(self._at + item * 4, 8))
        return start, stop

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self._count, STRIDE):
            yield from self._array(start, min(start + STRIDE, self._count))

    def _array(self, start: int, stop: int) -> array[int]:
        found = array(self._form, self._blocks.read(self._at + start * self._width, (stop - start) * self._width))
        if sys.byteorder == "big":
            found.byteswap()
        return found


class Index:
    """An open index, whose blocks are read when they are needed. Rows and segments are given by number, from 0."""

    def __init__(self, blocks: Blocks) -> None:
        """Read and check the header, and compute the offsets of the columns."""
        self.blocks = blocks
        self.name = name = blocks.name
        self.hash = blocks.hash
        """The hash at the end of the file, which is also in the log."""
        body = blocks.length
        if body < HEADER.size:
            raise CorruptFile(name, body, f"{body} bytes before its hashes, an index has {HEADER.size} or more")
        magic, version, flags, bits, *counts, _, pack_hash = HEADER.unpack(blocks.read(0, HEADER.size))
        if magic != MAGIC:
            raise CorruptFile(name, 0, f"begins with {magic!r}, an index with {MAGIC!r}")
        if version != VERSION or flags:
            raise CorruptFile(name, 8, f"index version {version} flags {flags}, this release reads version {VERSION}")
        # The hashes exclude damage: the next checks find mistakes of the writer.
        self.records, self.segments, _, _, outside = counts
        self.pack_hash: bytes = pack_hash
        at = HEADER.size
        places: list[tuple[int, int]] = []
        for (title, width), count in zip(_COLUMNS, _counts(bits, *counts), strict=True):
            stop = at + count * width
            if stop > body:
                raise CorruptFile(name, at, f"the column {title} of {count} items passes the end at {body}")
            places.append((at, count))
            at = (stop + 7) & ~7
        self._fanout, self._digests, self._rows = (place for place, _ in places[:3])
        self.segment_offsets = Column(blocks, *places[3], "Q")
        """The offset of each segment, and the end of the last."""
        self._id_offsets, self._by_id, self.parent_starts, self.parent_entries, self._external_offsets, outsides = (
            Column(blocks, *place, "I") for place in places[4:]
        )
        tables: list[int] = []
        for title, offsets in zip(_BLOBS, (self._id_offsets, self._external_offsets, outsides), strict=True):
            stop = at + offsets[len(offsets) - 1]
            if stop > body:
                raise CorruptFile(name, at, f"the table {title} of {stop - at} bytes passes the end at {body}")
            tables.append(at)
            at = (stop + 7) & ~7
        if at != body:
            raise CorruptFile(name, at, f"the tables end here, not at the hashes at {body}")
        self._ids, self._external_keys, outside_ids = tables
        ends = outsides[:]
        content = blocks.read(outside_ids, ends[-1])
        self.outside = tuple(content[ends[entry] : ends[entry + 1]] for entry in range(outside))
        """The ids of parents in earlier packs."""
        self._bits = bits
        self._asked = 0
        self._known: dict[RevisionId, int] | None = None

    @classmethod
    def of(cls, content: bytes, name: str) -> Index:
        """Open an index that is in memory. `name`: the path of the file, for messages."""
        return cls(Blocks(content, name))

    def find_digest(self, digest: bytes) -> range:
        """Return the rows with a `record_digest`, the lowest position first; empty if there are none."""
        read = self.blocks.read
        if self._bits:
            bucket = (digest[0] << 8 | digest[1]) >> 16 - self._bits
            low, high = _SPAN.unpack(read(self._fanout + 4 * bucket, 8))
        else:
            low, high = 0, self.records
        if low == high:
            return range(0)
        # A bucket has about 16 rows: copying them out and searching in C beats bisecting in Python.
        rows = read(self._digests + low * DIGEST, (high - low) * DIGEST)
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
        """Return the `record_digest` of a row."""
        return self.blocks.read(self._digests + row * DIGEST, DIGEST)

    def at(self, row: int) -> IndexRow:
        """Return the content of a row."""
        return made(IndexRow, ROW.unpack(self.blocks.read(self._rows + row * ROW.size, ROW.size)))

    def rows(self) -> Iterator[IndexRow]:
        """Yield the content of each row."""
        for start in range(0, self.records, STRIDE):
            content = self.blocks.read(self._rows + start * ROW.size, min(STRIDE, self.records - start) * ROW.size)
            yield from map(IndexRow._make, ROW.iter_unpack(content))

    def all_rows(self) -> bytes:
        """Return the bytes of all rows, to be unpacked by `ROW`."""
        return self.blocks.read(self._rows, self.records * ROW.size)

    def all_digests(self) -> bytes:
        """Return the bytes of all digests, `DIGEST` bytes each."""
        return self.blocks.read(self._digests, self.records * DIGEST)

    def row(self, row: int) -> Row:
        """Return the depth, chain and lineage of a row."""
        found = self.at(row)
        return Row(found.depth, found.chain_kib, found.lineage)

    def external(self, entry: int) -> tuple[int, Key]:
        """Return the kind and key of an external base, by its entry in the table."""
        raw = self._item(self._external_offsets, self._external_keys, entry)
        return raw[0], raw[1:]

    def externals(self) -> Iterator[tuple[int, Key]]:
        """Yield the kind and key of each external base, which is in an earlier pack."""
        return map(self.external, range(len(self._external_offsets) - 1))

    def revision(self, segment: int) -> RevisionId:
        """Return the id of a segment's revision."""
        return self._item(self._id_offsets, self._ids, segment)

    def revisions(self, first: int = 0, stop: int | None = None) -> Iterator[RevisionId]:
        """Yield the ids of the revisions of segments, by default of all segments."""
        last = self.segments if stop is None else stop
        for start in range(first, last, STRIDE):
            ends = self._id_offsets[start : min(start + STRIDE, last) + 1]
            content = self.blocks.read(self._ids + ends[0], ends[-1] - ends[0])
            for begin, end in pairwise(ends):
                yield content[begin - ends[0] : end - ends[0]]

    def _item(self, offsets: Column, table: int, entry: int) -> bytes:
        start, stop = offsets.span(entry)
        return self.blocks.read(table + start, stop - start)

    def segment_of(self, revision: RevisionId) -> int | None:
        """Return the number of a revision's segment; None if this index does not have the revision."""
        if self._known is None:
            # Bisecting for an id takes as long as listing 16 of them. A large push asks every pack for every revision.
            self._asked += 1
            if self.segments <= MOST_KNOWN and self._asked * 16 > self.segments:
                self._known = {revision_id: segment for segment, revision_id in enumerate(self.revisions())}
        if self._known is not None:
            return self._known.get(revision)
        by_id = self._by_id
        at = bisect.bisect_left(by_id, revision, key=self.revision)
        if at < self.segments:
            segment = by_id[at]
            if self.revision(segment) == revision:
                return segment
        return None

    def parents(self, segment: int) -> list[int]:
        """Return the parents of a segment that are not absent, each as a segment of this index, or as `OUTSIDE` plus an
        entry of `outside`."""
        start, stop = self.parent_starts.span(segment)
        return self.parent_entries[start:stop].tolist()
