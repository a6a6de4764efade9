"""`StoredRecords`: finds, decodes and proves the records in the packs of one state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from smartserver.errors import CorruptFile, shown
from smartserver.records.charge import Charge, free
from smartserver.records.check import TextProof, check_bytes, verify_record
from smartserver.records.content import Text
from smartserver.records.delta import decompress, decompress_parts, window
from smartserver.records.hunks import Buffer
from smartserver.records.model import BaseTag, Entry, Key, Kind, Record, RevisionId
from smartserver.records.segment import ZSTD
from smartserver.records.varint import Malformed, decode
from smartserver.store import parts, remote
from smartserver.store.caches import OF_TEXT, CachedText, TextCache, decode_text, encode_text
from smartserver.store.graph import Graph
from smartserver.store.index import EXTERNAL, NO_BASE, IndexRow, Row, record_digest
from smartserver.store.native import RecordReader, record_reader
from smartserver.store.open_pack import OpenPack
from smartserver.store.pack import PackReader
from smartserver.store.state import State
from transports.base import Transport
from transports.errors import TransportError

NEAR = 4 << 10
"""The most bytes from the start of a record's header to the end of its frame that are read in one call. Other records
of the revision are between the two. With 64 KiB, a verification read three times as many bytes, in four fifths of the
calls."""
HEADER = 512
"""The number of bytes that are read for a header of unknown length. A longer header is read again."""


Spot = tuple[int, int]
"""The place of a record: the number of its pack in the snapshot, and its row in the pack's index."""


class Location(NamedTuple):
    """One copy of a record."""

    pack: int
    """The number of the record's pack in the snapshot."""
    row: int
    """The row of the record in the pack's index."""
    ordinal: int
    """The global ordinal of the revision that introduced this copy."""
    depth: int
    chain_kib: int
    lineage: int
    header_offset: int
    frame_offset: int
    frame_length: int
    length: int
    """The length of the record's fulltext in bytes."""


class StoredRecords:
    """The records of some packs in the order of the packs; immutable."""

    def __init__(
        self, transport: Transport, state: State, packs: Sequence[OpenPack], graph: Graph, texts: TextCache
    ) -> None:
        self.state = state
        self.packs = tuple(packs)
        self.graph = graph
        self.texts = texts
        self._external: dict[tuple[int, int], tuple[int, int]] = {}
        """The pack and row of each external base found so far, by the pack and the entry that name the base."""
        self.transport = transport
        self.is_remote = remote.is_remote(transport)
        """True if the packs are in a remote store."""
        self._fetched: dict[Spot, bytes] = {}
        """The headers and frames of records that `fetch` has read. `_load` removes those of a record when it uses
        them."""
        self._native = None if self.is_remote else record_reader(state.kinds, len(self.packs))

    def introducers(self, kind: int, key: Key) -> Iterator[int]:
        """Yield the ordinals of the revisions that introduced a copy of a record, ascending; none if it is not
        stored."""
        digest = record_digest(kind, key)
        for pack, part in zip(self.packs, self.graph.parts, strict=True):
            for row in pack.index.find_digest(digest):
                yield part.first + pack.index.at(row).segment

    def first(self, kind: int, key: Key) -> Location | None:
        """Return the copy of a record at the lowest position; None if the record is not stored. A base key refers to
        this copy."""
        found = self._first(record_digest(kind, key), len(self.packs))
        return None if found is None else self._location(*found)

    def first_row(self, kind: int, key: Key) -> Row | None:
        """Return the depth, chain and lineage of the copy at the lowest position; None if the record is not stored."""
        found = self._first(record_digest(kind, key), len(self.packs))
        return None if found is None else self.packs[found[0]].index.row(found[1])

    def base(self, location: Location) -> Location | None:
        """Return the base of a record; None if it has no base."""
        number, row = location.pack, location.row
        said = self.packs[number].index.at(row)
        found = self._base(number, row, said)
        if found is None:
            return None
        self._base_row(found, number, row, said)
        return self._location(*found)

    def record(self, location: Location) -> Record:
        """Read and decode a record, and prove that it matches its key or check."""
        number, row = location.pack, location.row
        pack = self.packs[number]
        return self._read(number, row, self.texts.get(_text_key(pack, row)))

    def lookup(self, kind: int, key: Key, charge: Charge = free) -> Record | None:
        """Read and prove the record of a kind and key. Return None if it is not stored. A cached text is not read
        again. `charge` is called with the bytes of each text of the chain before it is decoded."""
        digest = record_digest(kind, key)
        found = self._first(digest, len(self.packs))
        if found is None:
            return None
        number, row = found
        cached = self.texts.get(_text_key(self.packs[number], row))
        if cached is not None and cached.proved:
            charge(len(cached.text))
            return Record(kind, key, cached.meta, cached.text)
        return self._read(number, row, cached, (kind, key), charge)

    def _read(
        self,
        number: int,
        row: int,
        cached: CachedText | None,
        asked: tuple[int, Key] | None = None,
        charge: Charge = free,
    ) -> Record:
        """Read and prove the record of a row. `asked`: as in `_header`; `charge`: as in `lookup`."""
        pack = self.packs[number]
        if self.is_remote and (number, row) not in self._fetched:
            self.fetch([self._location(number, row)])
        said = pack.index.at(row)
        charge(said.length)
        if cached is None and (read := self._read_natively(number, row, said, asked, charge)) is not None:
            return read
        entry, frame = self._load(number, row, said, asked)
        kind = self.state.kinds[entry.kind]
        text = cached.text if cached is not None else self._decode(number, row, said, entry, frame, charge)
        if cached is None or not cached.proved:
            try:
                verify_record(kind, entry.key, entry.meta, text, entry.check)
            except ValueError as error:
                raise _damaged(pack, said.header_offset, entry, str(error)) from error
            if kind.base:
                self.texts.put(_text_key(pack, row), CachedText(text, True, entry.meta))
        return Record(entry.kind, entry.key, entry.meta, text)

    def _read_natively(
        self, number: int, row: int, said: IndexRow, asked: tuple[int, Key] | None, charge: Charge
    ) -> Record | None:
        """Read and prove the record of a row natively. Return None if Python must read it: without a native reader, if
        it is damaged, or if its base is cached."""
        if self._native is None:
            return None
        base = self._base(number, row, said)
        if base is not None and self.texts.get(_text_key(self.packs[base[0]], base[1])) is not None:
            return None
        while isinstance(found := self._native.read(number, row), int):
            if not self._add_natively(self._native, found):
                self._native = None
                return None
        if found is None or (asked is not None and asked != found[:2]):
            return None
        kind, key, meta, text, check, decoded, is_proved = found
        charge(decoded - len(text))
        if not is_proved:
            try:
                verify_record(self.state.kinds[kind], key, meta, text, check)
            except ValueError:
                return None
        if self.state.kinds[kind].base:
            self.texts.put(_text_key(self.packs[number], row), CachedText(text, True, meta))
        return Record(kind, key, meta, text)

    def _add_natively(self, reader: RecordReader, wanted: int) -> bool:
        """Open a pack, or its index alone, for the native reader. Return False if this fails. `wanted`: the number that
        `RecordReader.read` returned."""
        number = wanted if wanted >= 0 else -1 - wanted
        try:
            index = self.packs[number].index.blocks.descriptor
            content = None if wanted < 0 else self.packs[number].reader.descriptor
        except (CorruptFile, TransportError):
            return False
        if index is None or (content is None and wanted >= 0):
            return False
        return reader.add(number, index, content)

    def text(self, kind: int, key: Key, charge: Charge = free) -> Text | None:
        """Return the text of a record; None if it is not stored. A large text is decoded while it is read. `charge`: as
        in `lookup`."""
        found = self._first(record_digest(kind, key), len(self.packs))
        if found is None:
            return None
        number, row = found
        cached = self.texts.get(_text_key(self.packs[number], row))
        if cached is not None and cached.proved and len(cached.text) <= parts.LARGE:
            charge(len(cached.text))
            return Text(cached.meta, len(cached.text), (cached.text,))
        said = self.packs[number].index.at(row)
        if self.is_remote or said.length <= parts.LARGE:
            others, name = self.texts.remote, b""
            if others is not None and cached is None:
                name = b"%b %d %b" % (self.state.incarnation, kind, key)
                cached = self._remote(others.get(name), number, row, said, (kind, key))
                if cached is not None:
                    charge(len(cached.text))
                    return Text(cached.meta, len(cached.text), (cached.text,))
            record = self._read(number, row, cached, (kind, key), charge)
            if others is not None and name:
                others.put(name, encode_text(CachedText(record.text, True, record.meta)) or b"")
            return Text(record.meta, len(record.text), (record.text,))
        entry = self._entry(number, row, said, (kind, key))
        return Text(entry.meta, entry.length, self._in_parts(number, row, said, entry, charge), entry.check)

    def _remote(
        self, found: bytes | None, number: int, row: int, said: IndexRow, asked: tuple[int, Key]
    ) -> CachedText | None:
        """Decode and prove `found`, a text from a remote cache. Return None if it is None or does not match the
        record."""
        if found is None:
            return None
        kind = self.state.kinds[asked[0]]
        cached, check = decode_text(found), b""
        if check_bytes(kind):  # The key does not prove the text.
            entry = self._entry(number, row, said, asked)
            check = entry.check
        try:
            verify_record(kind, asked[1], cached.meta, cached.text, check)
        except ValueError:
            return None
        if kind.base:
            self.texts.put(_text_key(self.packs[number], row), cached)
        return cached

    def _entry(self, number: int, row: int, said: IndexRow, asked: tuple[int, Key] | None = None) -> Entry:
        """Read the header of a record. `asked`: as in `_header`."""
        size = min(HEADER, said.frame_offset - said.header_offset)
        return self._header(number, row, said, self.packs[number].reader.read(said.header_offset, size), asked)

    def _is_kept(self, kind: int, length: int) -> bool:
        """Tell whether a text of this length would be cached. Such a text is decoded whole."""
        return self.state.kinds[kind].base and self.texts.takes(length + OF_TEXT)

    def _in_parts(self, number: int, row: int, said: IndexRow, entry: Entry, charge: Charge) -> Iterator[Buffer]:
        pack = self.packs[number]
        try:
            if self._is_kept(entry.kind, entry.length):
                yield from parts.PartedText(partial(self._whole, number, row), entry.length, None, charge)
                return
            proof = TextProof(self.state.kinds[entry.kind], entry.key, entry.meta, entry.length, entry.check)
            source = partial(self._source, number, row, said, entry)
            yield from parts.PartedText(source, entry.length, proof, charge)
        except ValueError as error:  # Malformed is a ValueError.
            raise _damaged(pack, said.header_offset, entry, str(error)) from error

    def _whole(self, number: int, row: int, charge: Charge) -> parts.Source:
        """Decode a whole text, or take it from the cache, and return it in parts."""
        cached = self.texts.get(_text_key(self.packs[number], row))
        if cached is not None and cached.proved:
            charge(len(cached.text))
            text = cached.text
        else:
            text = self._read(number, row, cached, None, charge).text
        return parts.Source(parts.cut(text), len(text))

    def _source(self, number: int, row: int, said: IndexRow, entry: Entry, charge: Charge) -> parts.Source:
        """Return a text in parts that are decoded on demand, as are the bases that the cache lacks."""
        charge(said.length)
        pack = self.packs[number]
        base = parts.Source(iter(()), 0)
        held = 0
        found = self._base(number, row, said)
        if entry.encoding == ZSTD:
            held = window(pack.reader.read(said.frame_offset, min(said.frame_length, HEADER)), entry.length)
        if found is not None:
            below = self._base_row(found, number, row, said)
            # A zstd frame needs its base whole.
            if entry.encoding == ZSTD or self._is_kept(entry.kind, below.length):
                base = self._whole(*found, charge)
            else:
                base = self._source(*found, below, self._entry(*found, below), charge)
        frame = pack.reader.parts(said.frame_offset, said.frame_length)
        decoded = decompress_parts(entry.encoding, frame, entry.length, base.parts)
        return parts.Source(decoded, base.held + held)

    def framed(self, kind: int, key: Key) -> tuple[Entry, bytes] | None:
        """Return the header and the stored frame of a record whose header has the key of its base. Return None for any
        other record, and for a large frame."""
        found = self._first(record_digest(kind, key), len(self.packs))
        said = None if found is None else self.packs[found[0]].index.at(found[1])
        if found is None or said is None or said.base == NO_BASE or said.frame_length > parts.LARGE:
            return None
        entry, frame = self._load(*found, said, (kind, key))
        return (entry, frame) if entry.base == BaseTag.FULL_KEY else None

    def metas(self, places: Sequence[tuple[int, Key]]) -> list[bytes]:
        """Return the metas of stored records, given by kind and key. All headers are read together."""
        rows: list[tuple[int, int, IndexRow]] = []
        for kind, key in places:
            digest = record_digest(kind, key)
            found = self._first(digest, len(self.packs))
            if found is None:
                raise LookupError(f"{shown(key)} is not stored")
            rows.append((*found, self.packs[found[0]].index.at(found[1])))
        read = remote.read_across(
            [
                (self.packs[number].reader, said.header_offset, min(HEADER, said.frame_offset - said.header_offset))
                for number, _, said in rows
            ]
        )
        return [self._header(*row, header).meta for row, header in zip(rows, read, strict=True)]

    def fetch(self, locations: Iterable[Location]) -> None:
        """Read records together for later calls of `record`, each with its bases down to a cached text."""
        wanted: dict[Spot, tuple[PackReader, int, int]] = {}
        met: set[Spot] = set()
        size = 0
        for location in locations:
            place: Spot | None = (location.pack, location.row)
            while place is not None and place not in met:
                met.add(place)
                number, row = place
                found = self.packs[number].index.at(row)
                start, stop = found.header_offset, found.frame_offset + found.frame_length
                if place not in self._fetched and stop - start <= remote.NEAR and size + stop - start <= remote.AT_ONCE:
                    wanted[place] = (self.packs[number].reader, start, stop - start)
                    size += stop - start
                place = self._base(number, row, found)
                if place is not None and self.texts.get(_text_key(self.packs[place[0]], place[1])):
                    break
        held = sum(map(len, list(self._fetched.values())))
        if held + size > remote.AT_ONCE:  # Some of these bytes are not needed any more.
            self._fetched.clear()
        self._fetched.update(zip(wanted, remote.read_across(list(wanted.values())), strict=True))

    def _location(self, number: int, row: int) -> Location:
        pack = self.packs[number]
        header, frame, frame_length, length, _, segment, chain, lineage, depth = pack.index.at(row)
        ordinal = self.graph.parts[number].first + segment
        return Location(number, row, ordinal, depth, chain, lineage, header, frame, frame_length, length)

    def _first(self, digest: bytes, before: int) -> tuple[int, int] | None:
        """Return the pack and row of the lowest copy in the packs before number `before`; None if they have no copy."""
        for number in range(before):
            rows = self.packs[number].index.find_digest(digest)
            if rows:
                return number, rows[0]
        return None

    def _base(self, number: int, row: int, said: IndexRow) -> Spot | None:
        """Return the pack and row of the base of a row; None if it has no base."""
        index = self.packs[number].index
        raw = said.base
        if raw == NO_BASE:
            return None
        if not raw & EXTERNAL:
            if raw >= index.records:
                raise CorruptFile(index.name, 0, f"row {row}: its base is row {raw} of {index.records}")
            return number, raw
        place = (number, raw ^ EXTERNAL)
        found = self._external.get(place)
        if found is None:
            kind, key = index.external(place[1])
            found = self._first(record_digest(kind, key), number)
            if found is None:
                raise CorruptFile(
                    self.packs[number].path, said.header_offset, f"its base {shown(key)} is in no pack before it"
                )
            self._external[place] = found
        return found

    def _base_row(self, base: Spot, number: int, row: int, said: IndexRow) -> IndexRow:
        """Return the content of a base's row. Check that the base is stored before the record, because a chain could
        otherwise be endless."""
        found = self.packs[base[0]].index.at(base[1])
        if base[0] == number and found.header_offset >= said.header_offset:
            name = self.packs[number].index.name
            raise CorruptFile(name, 0, f"row {row}: its base, row {base[1]}, does not lie before it")
        return found

    def _load(self, number: int, row: int, said: IndexRow, asked: tuple[int, Key] | None = None) -> tuple[Entry, bytes]:
        """Read the header and the frame of a record, and compare them with the index. `asked`: as in `_header`."""
        pack = self.packs[number]
        start, frame_at, frame_length = said.header_offset, said.frame_offset, said.frame_length
        stop = frame_at + frame_length
        read = self._fetched.pop((number, row), None)
        whole = read is not None or stop - start <= NEAR
        if read is None:
            read = pack.reader.read(start, stop - start if whole else min(HEADER, frame_at - start))
        entry = self._header(number, row, said, read, asked)
        return entry, read[frame_at - start :] if whole else pack.reader.read(frame_at, frame_length)

    def _header(
        self, number: int, row: int, said: IndexRow, read: bytes, asked: tuple[int, Key] | None = None
    ) -> Entry:
        """Decode the header of a record, and compare it with the index. `read`: its first bytes. `asked`: the kind and
        key by which the row was found; None if it was found otherwise, so that the index's digest must be compared."""
        pack = self.packs[number]
        start, most = said.header_offset, said.frame_offset - said.header_offset
        while True:
            try:
                entry = decode_header(read, b"", self.state.kinds)
                break
            except Malformed as error:
                if len(read) >= most:
                    raise CorruptFile(pack.path, start, f"record header: {error}") from error
                read = pack.reader.read(start, min(len(read) * 16, most))
        if not entry.key:  # Its key is the id of its revision, which takes two more reads of the index.
            entry = entry._replace(key=pack.index.revision(said.segment) if asked is None else asked[1])
        if entry.frame_length != said.frame_length or entry.length != said.length:
            raise _damaged(pack, start, entry, "its lengths differ from those in the index")
        named = entry.kind, entry.key
        if record_digest(*named) != pack.index.digest(row) if asked is None else named != asked:
            raise _damaged(pack, start, entry, "its key differs from the one in the index")
        return entry

    def _decode(
        self, number: int, row: int, said: IndexRow, entry: Entry, frame: bytes, charge: Charge = free
    ) -> bytes:
        """Decode the fulltext: follow the chain of bases to a cached text or its end, then decode the texts in reverse.
        Each text of the chain is charged."""
        steps = [(number, said.frame_offset, b"", entry, frame)]
        text = b""
        while (found := self._base(number, row, said)) is not None:
            pack = self.packs[found[0]]
            key = _text_key(pack, found[1])
            cached = self.texts.get(key)
            if cached is not None:
                text = cached.text
                break
            said = self._base_row(found, number, row, said)
            charge(said.length)
            number, row = found
            steps.append((number, said.frame_offset, key, *self._load(number, row, said)))
        while steps:
            number, frame_at, key, entry, frame = steps.pop()
            try:
                text = decompress(entry.encoding, frame, entry.length, text)
            except Malformed as error:
                raise _damaged(self.packs[number], frame_at, entry, str(error)) from error
            if steps:
                # The inner texts of a chain of forty, read for its end, would push other texts out of the cache.
                self.texts.put(key, CachedText(text, False, entry.meta), spare=True)
        return text


def _text_key(pack: OpenPack, row: int) -> bytes:
    """Return the cache key of a text. It includes the pack, because a copy of a repository may have another text under
    the same record key."""
    return pack.entry.name + row.to_bytes(4, "little")


def _damaged(pack: OpenPack, offset: int, entry: Entry, why: str) -> CorruptFile:
    return CorruptFile(pack.path, offset, f"record {shown(entry.key)}: {why}")


def decode_header(buf: bytes, revision: RevisionId, kinds: Sequence[Kind]) -> Entry:
    """Decode the header at the start of `buf`, in the segment of `revision`.

    Raises:
        Malformed: the header is cut off, or invalid.
    """
    if len(buf) < 2:
        raise Malformed(0, "a record's header is cut off")
    kind, encoding = buf[0], buf[1]
    if kind >= len(kinds):
        raise Malformed(0, f"kind {kind}, but the repository has {len(kinds)}")
    key, at = _string(buf, 2)
    meta, at = _string(buf, at)
    base, at = decode(buf, at)
    base_key = b""
    if base == BaseTag.FULL_KEY:
        base_key, at = _string(buf, at)
    length, at = decode(buf, at)
    frame_length, at = decode(buf, at)
    end = at + check_bytes(kinds[kind])
    if end > len(buf):
        raise Malformed(at, "a record's check is cut off")
    return Entry(kind, encoding, key or revision, meta, base, base_key, length, frame_length, buf[at:end])


def _string(buf: bytes, at: int) -> tuple[bytes, int]:
    length, begin = decode(buf, at)
    end = begin + length
    if end > len(buf):
        raise Malformed(at, "a record's header is cut off")
    return buf[begin:end], end
