"""Builds the index of a pack: while its segments arrive, from the indexes of the packs joined in it, or from the
pack."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat

from smartserver.errors import CorruptFile, LimitExceeded, shown
from smartserver.records.keys import KeyTable
from smartserver.records.limits import MAX_DEPTH
from smartserver.records.model import BaseTag, Key, RevisionId, Segment
from smartserver.records.segment import decode_segment
from smartserver.records.varint import Malformed
from smartserver.store.blocks import seal
from smartserver.store.index import (
    DIGEST,
    EXTERNAL,
    HEADER,
    MAGIC,
    NO_BASE,
    ONE_BYTE,
    OUTSIDE,
    ROW,
    STRIDE,
    VERSION,
    Index,
    Row,
    kib,
    name_digest,
    record_digest,
)
from smartserver.store.pack import TRAILER, PackReader

MAX_ROWS = 0x7FFFFFFE
U32 = 0xFFFFFFFF
PACED = 16
"""The number of rows or segments, about a quarter of a millisecond of work, between two calls of a `Pace`."""

Resolve = Callable[[int, Key], Row | None]
"""A function that returns the row of a record in an earlier pack, by kind and key; None if no earlier pack has it."""
Pace = Callable[[], None]
"""A function that background work calls several times in each millisecond. It may sleep."""


def unpaced() -> None:
    """Return at once. This is the `Pace` of work for which a client waits."""


def nowhere(_kind: int, _key: Key) -> None:
    """Return None. This is the `Resolve` of the first pack of a repository."""


def _aligned(content: array[int] | bytes) -> bytes:
    """Encode a column as little-endian numbers, or take a table as it is. Add zeros up to a multiple of 8 bytes."""
    if isinstance(content, array):
        if sys.byteorder == "big":
            content = array(content.typecode, content)
            content.byteswap()
        content = content.tobytes()
    return content + bytes(-len(content) & 7)


def _sorted(digests: bytes, bits: int, pace: Pace) -> tuple[array[int], array[int]]:
    """Sort records by digest. Return the number of rows before each bucket of the first `bits` bits of the digests, and
    the positions in the order of their digests."""
    rows = len(digests) // DIGEST
    fanout = array("I", bytes(4 * ((1 << bits) + 1)))
    shift = 16 - bits
    for at in range(0, len(digests), DIGEST):
        fanout[(digests[at] << 8 | digests[at + 1]) >> shift] += 1
    total = 0
    for bucket in range(1 << bits):
        total, fanout[bucket] = total + fanout[bucket], total
    fanout[1 << bits] = rows
    pace()
    order = array("I", bytes(4 * rows))
    free = array("I", fanout)
    for position in range(rows):
        if position % STRIDE == 0:
            pace()
        at = position * DIGEST
        bucket = (digests[at] << 8 | digests[at + 1]) >> shift
        order[free[bucket]] = position
        free[bucket] += 1
    for bucket in range(1 << bits):
        if bucket % PACED == 0:
            pace()
        low, high = fanout[bucket], fanout[bucket + 1]
        if high - low > 1:
            inside = sorted(order[low:high], key=lambda position: digests[position * DIGEST : (position + 1) * DIGEST])
            order[low:high] = array("I", inside)
    return fanout, order


def _blob(items: Iterable[bytes]) -> tuple[array[int], bytes]:
    offsets = array("I", (0,))
    at = 0
    parts = []
    for item in items:
        at += len(item)
        offsets.append(at)
        parts.append(item)
    return offsets, b"".join(parts)


class IndexBuilder:
    """Builds the index of one pack from its segments, in their order in the pack."""

    def __init__(
        self,
        resolve: Resolve = nowhere,
        numbering: Numbering | None = None,
        digest: Callable[[bytes], bytes] = name_digest,
    ) -> None:
        """`resolve`: finds bases in earlier packs. `numbering`: the caller's numbering, for `add_numbered`. `digest`:
        returns the digest of a record by its name in the numbering. When indexes are joined, which have no keys, the
        name is the digest itself."""
        numbering = numbering or Numbering()
        self._resolve = resolve
        self._names, self._revisions = numbering.records, numbering.revisions
        self._digest = digest
        self._header_offsets = array("I")
        """The offset of each record's header, from the start of its segment."""
        self._frame_offsets = array("I")
        """The offset of each record's frame, from the start of its segment."""
        self._frame_lengths = array("I")
        self._lengths = array("I")
        self._bases = array("I")
        self._row_segments = array("I")
        self._chains = array("I")
        self._lineages = array("I")
        self._depths = array("B")
        self._segment_offsets = array("Q")
        self._end = 0
        self._parent_starts = array("I", (0,))
        self._parent_entries = array("I")
        self._external: dict[tuple[int, Key], int] = {}
        self._outside: dict[RevisionId, int] = {}

    @property
    def segments(self) -> int:
        """The number of segments that were added."""
        return len(self._segment_offsets)

    @property
    def records(self) -> int:
        """The number of records that were added."""
        return len(self._bases)

    def add(self, offset: int, segment: Segment, lineages: Iterator[int] | None = None) -> list[tuple[Key, Key]]:
        """Add the segment at `offset` of the pack. Return the key of each record whose base was not found, with the key
        of the base. Bases are searched for in earlier packs, then in this pack. `lineages`: the lineages of the
        records; by default each is one more than its base's."""
        first = len(self._bases)
        self._revisions.add(segment.revision)
        for entry in segment.entries:
            self._names.add(ONE_BYTE[entry.kind] + entry.key)
        rows: list[Row] = []
        bases: list[int] = []
        missing: list[tuple[Key, Key]] = []
        for position, entry in enumerate(segment.entries, first):
            at, depth, chain, lineage = -1, 0, kib(entry.length), 0
            if entry.base != BaseTag.NONE:
                key = segment.base_of(entry)
                found = self._resolve(entry.kind, key)
                at = -1 if found is not None else self._names.find(ONE_BYTE[entry.kind] + key)
                if found is not None:
                    depth, chain, lineage = found.depth + 1, found.chain_kib + chain, found.lineage + 1
                elif 0 <= at < position:  # `add_numbered` computes depth and chain.
                    lineage = (rows[at - first].lineage if at >= first else self._lineages[at]) + 1
                else:
                    at, depth = -1, 1
                    missing.append((entry.key, key))
            rows.append(Row(depth, chain, lineage if lineages is None else next(lineages, 0)))
            bases.append(at)
        self.add_numbered(offset, segment, rows, bases)
        return missing

    def add_numbered(self, offset: int, segment: Segment, rows: Sequence[Row], bases: Sequence[int]) -> None:
        """Add a segment whose records the caller has numbered. `bases`: the number of each entry's base in this pack,
        or -1. `rows`: depth, chain and lineage of each entry; depth and chain count only for a base in another pack."""
        ordinal, count = len(self._segment_offsets), len(self._bases) + len(segment.entries)
        if count > MAX_ROWS or ordinal >= MAX_ROWS:
            raise LimitExceeded("records of one pack", count, MAX_ROWS)
        if self._revisions.find(segment.revision) != ordinal:
            raise ValueError(f"revision {shown(segment.revision)} has a segment in this pack already")
        if len(self._names) != count:
            raise ValueError(f"{len(self._names)} records are numbered, expected {count}")
        self._segment_offsets.append(offset)
        self._end = offset + segment.length
        for parent in segment.parents:
            if not parent.absent:
                self._parent_entries.append(self._parent_entry(parent.id))
        self._parent_starts.append(len(self._parent_entries))
        frame_at = segment.frames_at
        depths, chains = self._depths, self._chains
        frame_offsets: list[int] = []
        for entry, row, at in zip(segment.entries, rows, bases, strict=True):
            base, depth, chain = NO_BASE, 0, kib(entry.length)
            if at >= 0:
                base, depth, chain = at, depths[at] + 1, chains[at] + chain
            elif entry.base != BaseTag.NONE:
                place = entry.kind, segment.base_of(entry)
                base = EXTERNAL | self._external.setdefault(place, len(self._external))
                depth, chain = row.depth, row.chain_kib
            depths.append(min(depth, MAX_DEPTH))
            chains.append(min(chain, U32))
            self._bases.append(base)
            frame_offsets.append(frame_at)
            frame_at += entry.frame_length
        self._header_offsets.extend(segment.headers)
        self._frame_offsets.extend(frame_offsets)
        self._frame_lengths.extend([entry.frame_length for entry in segment.entries])
        self._lengths.extend([entry.length for entry in segment.entries])
        self._row_segments.extend([ordinal] * len(segment.entries))
        self._lineages.extend([min(row.lineage, U32) for row in rows])

    def append(self, index: Index, offset: int, pace: Pace = unpaced) -> None:
        """Add the index of another pack, whose segments were copied to this pack from `offset` on."""
        if len(self._names) + index.records > MAX_ROWS or self.segments + index.segments > MAX_ROWS:
            raise LimitExceeded("records of one pack", len(self._names) + index.records, MAX_ROWS)
        shift = offset - index.segment_offsets[0]
        first_segment = self.segments
        offsets, starts, entries = index.segment_offsets[:], index.parent_starts[:], index.parent_entries[:]
        for segment, revision in enumerate(index.revisions()):
            if segment % PACED == 0:
                pace()
            if self._revisions.add(revision) != first_segment + segment:
                raise ValueError(f"revision {shown(revision)} has a segment in two packs")
            self._segment_offsets.append(offsets[segment] + shift)
            for parent in entries[starts[segment] : starts[segment + 1]]:
                self._parent_entries.append(
                    self._parent_entry(index.outside[parent ^ OUTSIDE]) if parent & OUTSIDE else first_segment + parent
                )
            self._parent_starts.append(len(self._parent_entries))
        self._end = offsets[index.segments] + shift
        rows, digests = index.all_rows(), index.all_digests()
        headers = array("Q", (row.header_offset for row in index.rows()))
        order = sorted(range(index.records), key=headers.__getitem__)
        positions = array("I", bytes(4 * index.records))
        for position, row in enumerate(order, len(self._names)):
            if position % PACED == 0:
                pace()
            positions[row] = position
            digest = digests[row * DIGEST : (row + 1) * DIGEST]
            header, frame, frame_length, length, raw, segment, chain, lineage, depth = ROW.unpack_from(
                rows, row * ROW.size
            )
            base = NO_BASE
            if raw != NO_BASE:
                if raw & EXTERNAL:
                    external = index.external(raw ^ EXTERNAL)
                    at = -1 if self._resolve(*external) else self._names.find(record_digest(*external))
                    if at < 0:
                        base = EXTERNAL | self._external.setdefault(external, len(self._external))
                else:
                    at = self._names.find(self._names.key(positions[raw]))
                if at >= 0:
                    base, depth, chain = at, self._depths[at] + 1, self._chains[at] + kib(length)
            self._names.add(digest)
            self._header_offsets.append(header - offsets[segment])
            self._frame_offsets.append(frame - offsets[segment])
            self._frame_lengths.append(frame_length)
            self._lengths.append(length)
            self._bases.append(base)
            self._row_segments.append(segment + first_segment)
            self._chains.append(min(chain, U32))
            self._lineages.append(lineage)
            self._depths.append(min(depth, MAX_DEPTH))

    def _parent_entry(self, revision: RevisionId) -> int:
        local = self._revisions.find(revision)
        if local >= 0:
            return local
        return OUTSIDE | self._outside.setdefault(revision, len(self._outside))

    def finish(self, pack_length: int, pack_hash: bytes, pace: Pace = unpaced) -> Iterator[bytes]:
        """Yield the index of a pack of this length and hash, in pieces as `blocks.seal` does."""
        return seal(self._body(pack_length, pack_hash, pace))

    def _body(self, pack_length: int, pack_hash: bytes, pace: Pace) -> Iterator[bytes]:
        rows = len(self._bases)
        bits = min(16, max(0, (rows - 1).bit_length() - 4)) if rows else 0  # A bucket has about 16 rows.
        digests = self._digests(pace)
        fanout, order = _sorted(digests, bits, pace)
        row_of = array("I", bytes(4 * rows))
        for row, position in enumerate(order):
            row_of[position] = row
        revisions = self._revisions
        by_id = array("I", sorted(range(len(revisions)), key=revisions.key))
        external_offsets, external_blob = _blob(ONE_BYTE[kind] + key for kind, key in self._external)
        outside_offsets, outside_blob = _blob(self._outside)
        counts = (rows, len(revisions), len(self._parent_entries), len(self._external), len(self._outside))
        yield HEADER.pack(MAGIC, VERSION, 0, bits, *counts, pack_length, pack_hash)
        yield _aligned(fanout)
        for first in range(0, rows, STRIDE):
            pace()
            yield b"".join([digests[at * DIGEST : (at + 1) * DIGEST] for at in order[first : first + STRIDE]])
        yield bytes(-rows * DIGEST & 7)
        for first in range(0, rows, PACED):
            pace()
            yield b"".join(map(self._row, order[first : first + PACED], repeat(row_of)))
        yield bytes(-rows * ROW.size & 7)
        rest: tuple[array[int] | bytes, ...] = (
            array("Q", (*self._segment_offsets, self._end or pack_length - TRAILER)),
            revisions.ends,
            by_id,
            self._parent_starts,
            self._parent_entries,
            external_offsets,
            outside_offsets,
            bytes(revisions.joined),
            external_blob,
            outside_blob,
        )
        yield from map(_aligned, rest)

    def _digests(self, pace: Pace) -> bytes:
        """Return the digests of all records, by position."""
        found = bytearray()
        for first in range(0, len(self._bases), PACED):
            pace()
            found += b"".join(
                [self._digest(self._names.key(at)) for at in range(first, min(first + PACED, len(self._bases)))]
            )
        return bytes(found)

    def _row(self, position: int, row_of: array[int]) -> bytes:
        base = self._bases[position]
        start = self._segment_offsets[self._row_segments[position]]
        return ROW.pack(
            start + self._header_offsets[position],
            start + self._frame_offsets[position],
            self._frame_lengths[position],
            self._lengths[position],
            base if base & EXTERNAL else row_of[base],
            self._row_segments[position],
            self._chains[position],
            self._lineages[position],
            self._depths[position],
        )


def merge(
    indexes: Sequence[Index], pack_length: int, pack_hash: bytes, resolve: Resolve = nowhere, pace: Pace = unpaced
) -> Iterator[bytes]:
    """Join the indexes of neighbouring packs, given in order, without reading a pack. Yield in pieces the index that an
    `IndexBuilder` would make of the joined segments. The packs must have equal headers. `resolve`: finds records in
    earlier packs."""
    builder = IndexBuilder(resolve, digest=bytes)
    at = indexes[0].segment_offsets[0]
    for index in indexes:
        builder.append(index, at, pace)
        at += index.segment_offsets[index.segments] - index.segment_offsets[0]
    return builder.finish(pack_length, pack_hash, pace)


def rebuild(pack: PackReader, resolve: Resolve) -> bytes:
    """Rebuild the index of a pack from the pack alone. `resolve`: finds records in earlier packs. The lineage of a
    record becomes one more than its base's. A higher lineage that the writer knew is lost."""
    builder = IndexBuilder(resolve)
    for offset, encoded in pack.segments():
        try:
            segment = decode_segment(encoded, 0, pack.kinds)
        except (Malformed, LimitExceeded) as error:
            raise CorruptFile(pack.name, offset, f"segment: {error}") from error
        for key, base in builder.add(offset, segment):
            raise CorruptFile(pack.name, offset, f"record {shown(key)}: its base {shown(base)} is in no pack before it")
    return b"".join(builder.finish(pack.length, pack.trailer()))


MAX_JOINED = 0xFFFFFFFF
"""The most bytes of all names together, because an index stores their offsets in four bytes each."""


class Numbered(KeyTable):
    """A table of numbered names, at most 4 GiB together, for one thread. A name may have several numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = array("I", (0,))

    def add(self, name: bytes) -> int:
        """Add a name with the next number, even if it is known. Return the lowest number of the name."""
        end = len(self.joined) + len(name)
        if end > MAX_JOINED:
            raise LimitExceeded("bytes of the names of one pack's records or revisions", end, MAX_JOINED)
        first = self.find(name)
        if first < 0:
            return self.number(name)
        self.joined += name
        self.ends.append(end)
        return first


class Numbering:
    """The names of the records and revisions of one pack."""

    def __init__(self) -> None:
        self.records = Numbered()
        """The names of records: the byte of the kind, and the key."""
        self.revisions = Numbered()
        """The ids of revisions."""
