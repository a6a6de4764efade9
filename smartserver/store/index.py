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
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.limits import MAX_DEPTH
from smartserver.records.model import BaseTag, Key, RevisionId, Segment
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.store.headers import header_size
from smartserver.store.pack import TRAILER, PackReader

MAGIC = b"hpss-idx"
VERSION = 1
DIGEST = 20
NO_BASE = 0xFFFFFFFF
EXTERNAL = 0x80000000
"""In the base column: the rest is an entry of the table of external bases."""
OUTSIDE = 0x80000000
"""In the parents: the rest is an entry of the table of outside parents."""
MAX_ROWS = 0x7FFFFFFE
U32 = 0xFFFFFFFF
MOST_KNOWN = 1 << 14
"""Segments of an index whose revisions are listed in memory once they are asked for often: about 2 MB."""

_HEADER = struct.Struct("<8sBBBx5IQ16s")
"""Magic, version, flags, fanout bits, a zero; records, segments, parent entries, external bases, outside parents;
length and hash of the pack."""
_ONE_BYTE = tuple(bytes((kind,)) for kind in range(256))


class Row(NamedTuple):
    """What a record's own header does not say: how deep its base chain is."""

    depth: int = 0
    """Bases to be decoded before it."""
    chain_kib: int = 0
    """KiB of fulltext along the chain, its own included."""
    lineage: int = 0
    """The n of the k-ary base rule: versions of its path before it, as far as known."""


Before = Callable[[int, Key], bool]
"""Whether a record, by kind and key, lies in an earlier pack."""


def nowhere(_kind: int, _key: Key) -> bool:
    """What lies before the first pack of a repository."""
    return False


def record_digest(kind: int, key: Key) -> bytes:
    """What rows are sorted by."""
    return hashlib.blake2b(_ONE_BYTE[kind] + key, digest_size=DIGEST).digest()


def kib(length: int) -> int:
    """What a text of `length` bytes adds to the size of a chain."""
    return (length + 1023) >> 10


def fanout_bits(rows: int) -> int:
    """Bits of the fanout, so that a bucket has about 16 rows."""
    return min(16, max(0, (rows - 1).bit_length() - 4)) if rows else 0


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def _cast(view: memoryview, form: _Format) -> memoryview:
    if form == "B" or sys.byteorder == "little":
        return view.cast(form)
    column = array(form, bytes(view))
    column.byteswap()
    return memoryview(column)


def _fanout(digests: bytes, bits: int) -> array[int]:
    """Rows before each bucket of the digests' first `bits` bits, and their number."""
    rows = len(digests) // DIGEST
    fanout = array("I", bytes(4 * ((1 << bits) + 1)))
    shift = 16 - bits
    for at in range(0, len(digests), DIGEST):
        fanout[(digests[at] << 8 | digests[at + 1]) >> shift] += 1
    total = 0
    for bucket in range(1 << bits):
        total, fanout[bucket] = total + fanout[bucket], total
    fanout[1 << bits] = rows
    return fanout


def _blob(items: Iterable[bytes]) -> tuple[array[int], bytes]:
    offsets = array("I", (0,))
    at = 0
    parts = []
    for item in items:
        at += len(item)
        offsets.append(at)
        parts.append(item)
    return offsets, b"".join(parts)


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
        if body < _HEADER.size:
            raise CorruptFile(name, len(view), f"{len(view)} bytes, an index has {_HEADER.size + TRAILER} or more")
        magic, version, flags, bits, *counts, pack_length, pack_hash = _HEADER.unpack_from(view)
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
        at = _HEADER.size
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


class IndexBuilder:
    """Collects the rows and segments of one pack, in the order they lie in it."""

    def __init__(self, before: Before = nowhere) -> None:
        """`before`: whether a record lies in a pack before this one; it is then the base of those that name it."""
        self._before = before
        self._first: dict[bytes, int] = {}
        """Digest -> position of the first copy."""
        self._digests: list[bytes] = []
        self._header_offsets = array("Q")
        self._frame_offsets = array("Q")
        self._frame_lengths = array("I")
        self._lengths = array("I")
        self._bases = array("I")
        self._row_segments = array("I")
        self._chains = array("I")
        self._lineages = array("I")
        self._depths = array("B")
        self._segments: dict[RevisionId, int] = {}
        self._segment_offsets = array("Q")
        self._end = 0
        self._parent_starts = array("I", (0,))
        self._parent_entries = array("I")
        self._external: dict[tuple[int, Key], int] = {}
        self._outside: dict[RevisionId, int] = {}

    @property
    def segments(self) -> int:
        """How many segments were added."""
        return len(self._segments)

    @property
    def records(self) -> int:
        """How many records were added."""
        return len(self._digests)

    def first_copy(self, kind: int, key: Key) -> Row | None:
        """The row of the first copy added so far: what a later record with this base rests on."""
        at = self._first.get(record_digest(kind, key))
        return None if at is None else Row(self._depths[at], self._chains[at], self._lineages[at])

    def holds(self, digest: bytes) -> bool:
        """Whether a record of that digest was added."""
        return digest in self._first

    def segment_of(self, revision: RevisionId) -> int | None:
        """The segment of a revision added so far."""
        return self._segments.get(revision)

    def add(self, offset: int, segment: Segment, rows: Sequence[Row]) -> None:
        """Add the segment at `offset` of the pack; one row an entry.

        Where the base is in this pack, its depth and chain are known here and those of `rows` are not used.

        Raises:
            LimitExceeded: more records or revisions than an index holds.
            ValueError: a revision is added twice.
        """
        ordinal = len(self._segments)
        if len(self._digests) + len(segment.entries) > MAX_ROWS or ordinal >= MAX_ROWS:
            raise LimitExceeded("records of one pack", len(self._digests) + len(segment.entries), MAX_ROWS)
        if segment.revision in self._segments:
            raise ValueError(f"revision {segment.revision.hex()} has a segment in this pack already")
        self._segments[segment.revision] = ordinal
        self._segment_offsets.append(offset)
        self._end = offset + segment.length
        for parent in segment.parents:
            if not parent.absent:
                self._parent_entries.append(self._parent_entry(parent.id))
        self._parent_starts.append(len(self._parent_entries))
        frame_at = offset + segment.frames_at
        sizes = [header_size(entry, segment.revision) for entry in segment.entries]
        header_at = frame_at - sum(sizes)
        for entry, size, row in zip(segment.entries, sizes, rows, strict=True):
            base, depth, chain = NO_BASE, 0, kib(entry.length)
            if entry.base != BaseTag.NONE:
                base_key = segment.base_of(entry)
                at = self._first.get(record_digest(entry.kind, base_key))
                if at is None or self._before(entry.kind, base_key):
                    base = EXTERNAL | self._external.setdefault((entry.kind, base_key), len(self._external))
                    depth, chain = row.depth, row.chain_kib
                else:
                    base, depth, chain = at, self._depths[at] + 1, self._chains[at] + chain
            digest = record_digest(entry.kind, entry.key)
            self._first.setdefault(digest, len(self._digests))
            self._digests.append(digest)
            self._header_offsets.append(header_at)
            self._frame_offsets.append(frame_at)
            self._frame_lengths.append(entry.frame_length)
            self._lengths.append(entry.length)
            self._bases.append(base)
            self._row_segments.append(ordinal)
            self._chains.append(min(chain, U32))
            self._lineages.append(min(row.lineage, U32))
            self._depths.append(min(depth, MAX_DEPTH))
            header_at += size
            frame_at += entry.frame_length

    def _parent_entry(self, revision: RevisionId) -> int:
        local = self._segments.get(revision)
        if local is not None:
            return local
        return OUTSIDE | self._outside.setdefault(revision, len(self._outside))

    def append(self, index: Index, offset: int) -> None:
        """Add all of another pack's index, its first segment now at `offset`, without reading that pack.

        Raises:
            LimitExceeded: more records or revisions than an index holds.
            ValueError: a revision is in both.
        """
        if len(self._digests) + index.records > MAX_ROWS or len(self._segments) + index.segments > MAX_ROWS:
            raise LimitExceeded("records of one pack", len(self._digests) + index.records, MAX_ROWS)
        shift = offset - index.segment_offsets[0]
        first_segment = len(self._segments)
        for segment in range(index.segments):
            revision = index.revision(segment)
            if revision in self._segments:
                raise ValueError(f"revision {revision.hex()} has a segment in two packs")
            self._segments[revision] = first_segment + segment
            self._segment_offsets.append(index.segment_offsets[segment] + shift)
            for parent in index.parents(segment):
                self._parent_entries.append(
                    self._parent_entry(index.outside[parent ^ OUTSIDE]) if parent & OUTSIDE else first_segment + parent
                )
            self._parent_starts.append(len(self._parent_entries))
        self._end = index.segment_offsets[index.segments] + shift
        order = sorted(range(index.records), key=index.header_offsets.tolist().__getitem__)
        positions = array("I", bytes(4 * index.records))
        for position, row in enumerate(order, len(self._digests)):
            positions[row] = position
            digest = index.digest(row)
            raw = index.bases[row]
            length = index.lengths[row]
            depth, chain = index.depths[row], index.chains[row]
            base = NO_BASE
            if raw != NO_BASE:
                at: int | None
                if raw & EXTERNAL:
                    external = index.external(raw ^ EXTERNAL)
                    at = None if self._before(*external) else self._first.get(record_digest(*external))
                    if at is None:
                        base = EXTERNAL | self._external.setdefault(external, len(self._external))
                else:
                    at = self._first[self._digests[positions[raw]]]
                if at is not None:
                    base, depth, chain = at, self._depths[at] + 1, self._chains[at] + kib(length)
            self._first.setdefault(digest, position)
            self._digests.append(digest)
            self._header_offsets.append(index.header_offsets[row] + shift)
            self._frame_offsets.append(index.frame_offsets[row] + shift)
            self._frame_lengths.append(index.frame_lengths[row])
            self._lengths.append(length)
            self._bases.append(base)
            self._row_segments.append(index.row_segments[row] + first_segment)
            self._chains.append(min(chain, U32))
            self._lineages.append(index.lineages[row])
            self._depths.append(min(depth, MAX_DEPTH))

    def finish(self, pack_length: int, pack_hash: bytes) -> bytes:
        """The index of a pack of that length and hash."""
        rows = len(self._digests)
        order = sorted(range(rows), key=self._digests.__getitem__)  # Stable: copies stay in the order of position.
        row_of = array("I", bytes(4 * rows))
        for row, position in enumerate(order):
            row_of[position] = row
        bases = array("I", (base if base & EXTERNAL else row_of[base] for base in map(self._bases.__getitem__, order)))
        bits = fanout_bits(rows)
        digests = b"".join(map(self._digests.__getitem__, order))
        ids = list(self._segments)
        by_id = array("I", sorted(range(len(ids)), key=ids.__getitem__))
        id_offsets, id_blob = _blob(ids)
        external_offsets, external_blob = _blob(_ONE_BYTE[kind] + key for kind, key in self._external)
        outside_offsets, outside_blob = _blob(self._outside)
        columns: list[array[int] | bytes] = [
            _fanout(digests, bits),
            digests,
            *(
                array(column.typecode, map(column.__getitem__, order))
                for column in (self._header_offsets, self._frame_offsets, self._frame_lengths, self._lengths)
            ),
            bases,
            *(
                array(column.typecode, map(column.__getitem__, order))
                for column in (self._row_segments, self._chains, self._lineages, self._depths)
            ),
            array("Q", (*self._segment_offsets, self._end or pack_length - TRAILER)),
            id_offsets,
            by_id,
            self._parent_starts,
            self._parent_entries,
            external_offsets,
            outside_offsets,
            id_blob,
            external_blob,
            outside_blob,
        ]
        counts = (rows, len(ids), len(self._parent_entries), len(self._external), len(self._outside))
        out = bytearray(_HEADER.pack(MAGIC, VERSION, 0, bits, *counts, pack_length, pack_hash))
        for content in columns:
            out += content if isinstance(content, bytes) else _little_endian(content)
            out += bytes(-len(out) & 7)
        out += hashlib.blake2b(out, digest_size=TRAILER).digest()
        return bytes(out)


def merge(indexes: Sequence[Index], pack_length: int, pack_hash: bytes, before: Before = nowhere) -> bytes:
    """The index of the packs of `indexes` joined segment by segment, in that order, without reading a pack.

    `before`: whether a record lies in a pack before the first of them.
    The packs have equal headers. The bytes are those an `IndexBuilder` makes of the joined pack's segments.

    Raises:
        LimitExceeded: more records or revisions than an index holds.
        ValueError: a revision is in two of the packs.
    """
    builder = IndexBuilder(before)
    at = indexes[0].segment_offsets[0]
    for index in indexes:
        builder.append(index, at)
        at += index.segment_offsets[index.segments] - index.segment_offsets[0]
    return builder.finish(pack_length, pack_hash)


def rebuild(pack: PackReader, resolve: Callable[[int, Key], Row | None]) -> bytes:
    """The index of a pack, from the pack alone; `resolve` gives the row of a base that lies in an earlier pack.

    The lineage of a record is that of its base and one more: what the writer knew beyond that is lost.

    Raises:
        CorruptFile: the pack is damaged, or a base is nowhere.
        TransportFailed: the store failed.
    """
    builder = IndexBuilder(lambda kind, key: resolve(kind, key) is not None)
    for offset, encoded in pack.segments():
        try:
            segment = decode_segment(encoded, 0, pack.kinds)
        except (Malformed, LimitExceeded) as wrong:
            raise CorruptFile(pack.name, offset, f"segment: {wrong}") from wrong
        introduced: dict[tuple[int, Key], Row] = {}
        rows: list[Row] = []
        for entry in segment.entries:
            row = Row(0, kib(entry.length), 0)
            if entry.base != BaseTag.NONE:
                base = (entry.kind, segment.base_of(entry))
                found = resolve(*base) or builder.first_copy(*base) or introduced.get(base)
                if found is None:
                    why = f"record {entry.key.hex()}: its base {base[1].hex()} is in no pack before it"
                    raise CorruptFile(pack.name, offset, why)
                row = Row(found.depth + 1, found.chain_kib + row.chain_kib, found.lineage + 1)
            introduced.setdefault((entry.kind, entry.key), row)
            rows.append(row)
        builder.add(offset, segment, rows)
    length, digest = pack.length, pack.trailer()
    return builder.finish(length, digest)
