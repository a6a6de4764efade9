"""A snapshot: a root, its packs and their graph, immutable and replaced whole; a reader keeps the one it began with.

A file that is gone (`NoSuchFile`) means that the root moved on: the caller reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from smartserver.errors import CorruptFile, LimitExceeded, shown
from smartserver.records.check import rules_of, verify_record
from smartserver.records.delta import decompress
from smartserver.records.model import Entry, Key, Parent, Record, RevisionId
from smartserver.records.segment import decode_parents
from smartserver.records.varint import Malformed
from smartserver.store import far
from smartserver.store.caches import TextCache
from smartserver.store.document import PackEntry, Root
from smartserver.store.graph import Graph, Part
from smartserver.store.headers import decode_header
from smartserver.store.index import EXTERNAL, NO_BASE, Row, record_digest
from smartserver.store.open_pack import NONE_READ, OpenPack, index_path
from smartserver.store.pack import PackReader
from smartserver.store.root import RootView
from smartserver.store.segment_reader import SegmentReader
from transports.base import Transport

NEAR = 64 << 10
"""Bytes between the start of a record's header and the end of its frame that are read at once."""
HEADER = 512
"""Bytes read for a header whose length is not known; a longer one is read again."""


class Location(NamedTuple):
    """One copy of a record."""

    pack: int
    """The place of its pack among the snapshot's."""
    row: int
    """Its row in the pack's index."""
    ordinal: int
    """The global ordinal of the revision that introduced this copy."""
    depth: int
    chain_kib: int
    lineage: int
    header_offset: int
    frame_offset: int
    frame_length: int
    length: int
    """Bytes of its fulltext."""


class Snapshot:
    """What one root names, opened."""

    def __init__(self, view: RootView, packs: Sequence[OpenPack], graph: Graph, texts: TextCache) -> None:
        self.view = view
        self.root = view.root
        self.packs = tuple(packs)
        self.graph = graph
        self.texts = texts
        self._external: dict[tuple[int, int], tuple[int, int]] = {}
        """External bases found so far: pack and entry -> pack and row."""
        self.far = far.is_far(view.transport)
        """Whether what it reads lies behind a link."""
        self._fetched = far.Fetched()

    @classmethod
    def open(
        cls, transport: Transport, root: Root, previous: Snapshot | None = None, texts: TextCache | None = None
    ) -> Snapshot:
        """The snapshot of a root; packs `previous` has open are taken over, and its cache of texts.

        Raises:
            NoSuchFile: a pack is gone: read the root again.
            CorruptFile: a pack is damaged and its index too, or names a parent that is in no pack before it.
            TransportFailed: the store failed.
        """
        if texts is None:
            texts = previous.texts if previous is not None else TextCache()
        view = RootView(root, transport, previous.view if previous is not None else None)
        opened: dict[PackEntry, tuple[OpenPack, Part]] = {}
        # In another epoch revisions were dropped: ordinals are new.
        if previous is not None and _family(previous.root) == _family(root):
            if previous.root.packs == root.packs:
                return cls(view, previous.packs, previous.graph, texts)
            opened = {pack.entry: (pack, part) for pack, part in zip(previous.packs, previous.graph.parts, strict=True)}
        packs: list[OpenPack] = []
        graph = Graph()
        read = NONE_READ
        if far.is_far(transport):
            files = {index_path(entry.name): entry.index_length for entry in root.packs if entry not in opened}
            read = dict(far.get_all(transport, {**files, **view.unopened()}))
            view.take_over(read)
        for entry in root.packs:
            found = opened.get(entry)
            if found is not None:
                pack, part = found
                graph, missing = graph.with_index(pack.index, part)
            else:
                pack = OpenPack(transport, entry, root.kinds)
                pack.open_index(cls(view, packs, graph, texts).first_row, read)
                graph, missing = graph.with_index(pack.index)
            if missing:
                raise CorruptFile(pack.path, 0, f"the parent {shown(missing[0])} is in no pack before it")
            packs.append(pack)
        return cls(view, packs, graph, texts)

    def ordinal(self, revision: RevisionId) -> int | None:
        """The global ordinal of a revision, or None where it is not stored."""
        return self.graph.ordinal(revision)

    def revision(self, ordinal: int) -> RevisionId:
        """The id at a global ordinal.

        Raises:
            IndexError: there is no such revision.
        """
        return self.graph.revision(ordinal)

    def introducers(self, kind: int, key: Key) -> Iterator[int]:
        """The ordinals of the revisions that brought a copy of a record, ascending; none where it is not stored."""
        digest = record_digest(kind, key)
        for pack, part in zip(self.packs, self.graph.parts, strict=True):
            for row in pack.index.find_digest(digest):
                yield part.first + pack.index.row_segments[row]

    def first(self, kind: int, key: Key) -> Location | None:
        """The copy at the lowest position, which is what a base key means."""
        found = self._first(record_digest(kind, key), len(self.packs))
        return None if found is None else self._location(*found)

    def first_row(self, kind: int, key: Key) -> Row | None:
        """Depth, chain and lineage of the copy at the lowest position."""
        found = self._first(record_digest(kind, key), len(self.packs))
        return None if found is None else self.packs[found[0]].index.row(found[1])

    def base(self, location: Location) -> Location | None:
        """The base of a record, or None where it has none.

        Raises:
            CorruptFile: it is in no pack before the record's.
        """
        found = self._base(location.pack, location.row)
        return None if found is None else self._location(*found)

    def record(self, location: Location, *, check: bool = True) -> Record:
        """A record, its chain decoded. With `check` it is proved to be what its key or check says.

        Raises:
            CorruptFile: it cannot be read, or is not what it says.
            NoSuchFile: its pack is gone: read the root again.
            TransportFailed: the store failed.
        """
        pack = self.packs[location.pack]
        if self.far and (location.pack, location.row) not in self._fetched:
            self.fetch([location])
        entry, frame = self._load(location.pack, location.row)
        kind = self.root.kinds[entry.kind]
        key = self._text_key(pack.index.digest(location.row)) if kind.base else None
        cached = self.texts.get(key) if key is not None else None
        text = cached.text if cached is not None else self._decode(location.pack, location.row, entry, frame)
        proved = cached is not None and cached.proved
        if check and not proved:
            try:
                verify_record(kind, entry.key, entry.meta, text, entry.check)
            except ValueError as wrong:
                raise _damaged(pack, location.header_offset, entry, str(wrong)) from wrong
            proved = True
        if key is not None and (cached is None or cached.proved != proved):
            self.texts.put(key, text, proved=proved)
        return Record(entry.kind, entry.key, entry.meta, text)

    def metas(self, places: Sequence[tuple[int, Key]]) -> list[bytes]:
        """The metas of stored records, each by kind and key, from their headers, which are read in one go.

        Raises:
            CorruptFile, NoSuchFile, TransportFailed: as `record`.
        """
        rows = []
        for kind, key in places:
            found = self._first(record_digest(kind, key), len(self.packs))
            if found is None:
                raise LookupError(f"{shown(key)} is not stored")
            rows.append(found)
        wanted = [self._header_range(number, row, HEADER) for number, row in rows]
        read = far.read_across(wanted)
        return [self._header(*place, each).meta for place, each in zip(rows, read, strict=True)]

    def fetch(self, locations: Iterable[Location]) -> None:
        """Read records, with the bases of each down to a text that is known, in one go: `record` has them then.

        Raises:
            CorruptFile, NoSuchFile, TransportFailed: as `record`.
        """
        wanted: dict[far.Place, tuple[PackReader, int, int]] = {}
        size = 0
        for location in locations:
            place: far.Place | None = (location.pack, location.row)
            while place is not None and place not in wanted:
                number, row = place
                index = self.packs[number].index
                start, stop = index.header_offsets[row], index.frame_offsets[row] + index.frame_lengths[row]
                if place not in self._fetched and stop - start <= far.NEAR and size + stop - start <= far.AT_ONCE:
                    wanted[place] = (self.packs[number].reader, start, stop - start)
                    size += stop - start
                place = self._base(number, row)
                if place is not None and self.texts.get(self._text_key(self.packs[place[0]].index.digest(place[1]))):
                    break
        self._fetched.read(wanted)

    def runs(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[OpenPack, int, int]]:
        """Where half-open ranges of global ordinals lie: pack, first and last offset; one run a range and pack.

        Raises:
            IndexError: there is no such revision.
        """
        for start, stop in ranges:
            while start < stop:
                number = self.graph.part_at(start)
                part = self.graph.parts[number]
                last = min(stop, part.first + part.count)
                offsets = self.packs[number].index.segment_offsets
                yield self.packs[number], offsets[start - part.first], offsets[last - part.first]
                start = last

    def size(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Bytes of the segments in half-open ranges of global ordinals.

        Raises:
            IndexError: there is no such revision.
        """
        return sum(stop - start for _, start, stop in self.runs(ranges))

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> SegmentReader:
        """The segments in half-open ranges of global ordinals, as they lie.

        Raises:
            IndexError: there is no such revision.
        """
        ranges = tuple(ranges)
        return SegmentReader(self.runs(ranges), sum(stop - start for start, stop in ranges))

    def first_parent(self, ordinal: int) -> int | None:
        """The ordinal of a revision's first parent; None where it has none, or that one is a ghost.

        Raises:
            IndexError, CorruptFile, NoSuchFile, TransportFailed: as `parents`.
        """
        stored = self.graph.parents(ordinal)
        if not stored or self.parents(ordinal)[0].absent:
            return None
        return stored[0]

    def parents(self, ordinal: int) -> tuple[Parent, ...]:
        """The parents of a revision, absent ones too, which the graph does not know.

        Raises:
            IndexError: there is no such revision.
            CorruptFile: its header cannot be read.
            NoSuchFile, TransportFailed: as `SegmentReader.read`.
        """
        if not rules_of(self.root.vcs).ghosts:
            return tuple([Parent(self.revision(parent)) for parent in self.graph.parents(ordinal)])
        ((pack, start, stop),) = self.runs(((ordinal, ordinal + 1),))
        size = min(HEADER, stop - start)
        while True:
            try:
                return decode_parents(pack.reader.read(start, size), 0)
            except (Malformed, LimitExceeded) as wrong:
                if size == stop - start or isinstance(wrong, LimitExceeded):
                    raise CorruptFile(pack.path, start, f"segment header: {wrong}") from wrong
                size = min(size * 16, stop - start)

    def segment(self, ordinal: int) -> bytes:
        """One segment as it lies.

        Raises:
            IndexError: there is no such revision.
            CorruptFile, NoSuchFile, TransportFailed: as `SegmentReader.read`.
        """
        reader = self.read_ranges(((ordinal, ordinal + 1),))
        return reader.read(reader.left)

    def _location(self, number: int, row: int) -> Location:
        pack = self.packs[number]
        index = pack.index
        return Location(
            number,
            row,
            self.graph.parts[number].first + index.row_segments[row],
            index.depths[row],
            index.chains[row],
            index.lineages[row],
            index.header_offsets[row],
            index.frame_offsets[row],
            index.frame_lengths[row],
            index.lengths[row],
        )

    def _text_key(self, digest: bytes) -> bytes:
        # One text a key, where records of the kind may be bases: so the key will do for all copies.
        return self.root.incarnation + digest

    def _first(self, digest: bytes, before: int) -> tuple[int, int] | None:
        """Pack and row of the lowest copy in the packs in front of pack `before`."""
        for number in range(before):
            rows = self.packs[number].index.find_digest(digest)
            if rows:
                return number, rows[0]
        return None

    def _base(self, number: int, row: int) -> tuple[int, int] | None:
        index = self.packs[number].index
        raw = index.bases[row]
        if raw == NO_BASE:
            return None
        if not raw & EXTERNAL:
            if raw >= index.records or index.header_offsets[raw] >= index.header_offsets[row]:
                raise CorruptFile(index.name, 0, f"row {row}: its base, row {raw}, does not lie before it")
            return number, raw
        place = (number, raw ^ EXTERNAL)
        found = self._external.get(place)
        if found is None:
            kind, key = index.external(place[1])
            found = self._first(record_digest(kind, key), number)
            if found is None:
                raise CorruptFile(
                    self.packs[number].path, index.header_offsets[row], f"its base {shown(key)} is in no pack before it"
                )
            self._external[place] = found
        return found

    def _load(self, number: int, row: int) -> tuple[Entry, bytes]:
        """The header and the frame of a record, compared with the index."""
        pack = self.packs[number]
        index = pack.index
        start, frame_at, frame_length = index.header_offsets[row], index.frame_offsets[row], index.frame_lengths[row]
        stop = frame_at + frame_length
        read = self._fetched.take((number, row))
        whole = read is not None or stop - start <= NEAR
        if read is None:
            read = pack.reader.read(start, stop - start if whole else min(HEADER, frame_at - start))
        entry = self._header(number, row, read)
        return entry, read[frame_at - start :] if whole else pack.reader.read(frame_at, frame_length)

    def _header_range(self, number: int, row: int, size: int) -> tuple[PackReader, int, int]:
        """Where so many bytes of a record's header lie, or all of them where it has fewer."""
        pack = self.packs[number]
        start = pack.index.header_offsets[row]
        return pack.reader, start, min(size, pack.index.frame_offsets[row] - start)

    def _header(self, number: int, row: int, read: bytes) -> Entry:
        """The header of a record, compared with the index; `read`: what was read from where it begins."""
        pack = self.packs[number]
        index = pack.index
        start, most = index.header_offsets[row], index.frame_offsets[row] - index.header_offsets[row]
        revision = index.revision(index.row_segments[row])
        while True:
            try:
                entry = decode_header(read, revision, self.root.kinds)
                break
            except Malformed as wrong:
                if len(read) >= most:
                    raise CorruptFile(pack.path, start, f"record header: {wrong}") from wrong
                read = pack.reader.read(start, min(len(read) * 16, most))
        if entry.frame_length != index.frame_lengths[row] or entry.length != index.lengths[row]:
            raise _damaged(pack, start, entry, "its lengths are not those in the index")
        if record_digest(entry.kind, entry.key) != index.digest(row):
            raise _damaged(pack, start, entry, "not the key in the index")
        return entry

    def _decode(self, number: int, row: int, entry: Entry, frame: bytes) -> bytes:
        """The fulltext: down the chain to what is known or rests on nothing, and up again."""
        steps = [(number, row, entry, frame)]
        text = b""
        while (found := self._base(number, row)) is not None:
            number, row = found
            cached = self.texts.get(self._text_key(self.packs[number].index.digest(row)))
            if cached is not None:
                text = cached.text
                break
            steps.append((number, row, *self._load(number, row)))
        while steps:
            number, row, entry, frame = steps.pop()
            pack = self.packs[number]
            try:
                text = decompress(entry.encoding, frame, entry.length, text)
            except Malformed as wrong:
                raise _damaged(pack, pack.index.frame_offsets[row], entry, str(wrong)) from wrong
            if steps:
                self.texts.put(self._text_key(pack.index.digest(row)), text, proved=False)
        return text


def _damaged(pack: OpenPack, offset: int, entry: Entry, why: str) -> CorruptFile:
    return CorruptFile(pack.path, offset, f"record {shown(entry.key)}: {why}")


def _family(root: Root) -> tuple[object, ...]:
    return root.incarnation, root.epoch, root.kinds
