"""`KnownRecords`: the records that a pushed record may have as its base, from its stream or stored.

A record whose chain would become too deep is encoded again on a base with a shorter chain.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from smartserver.errors import shown
from smartserver.records.cache import Cache
from smartserver.records.delta import compress, decompress
from smartserver.records.limits import MAX_CHAIN
from smartserver.records.model import BaseTag, Entry, Key, Record, RecordName, RevisionId, made
from smartserver.records.segment import STORED
from smartserver.store import parts
from smartserver.store.allowance import Allowance
from smartserver.store.ancestry import Ancestry
from smartserver.store.index import ONE_BYTE, Row, kib
from smartserver.store.index_build import Numbered
from smartserver.store.native import Prover
from smartserver.store.proof import SegmentProof
from smartserver.store.snapshot import Snapshot
from smartserver.store.stored_records import Location

TEXT_BYTES = 40 << 20
"""The most bytes of fulltexts of recent records. Compared with 40 MiB, 64 MiB save a server 2 to 10 % of the CPU time
of a first push of 12,502 commits, and take 25 MB more. 48 MiB save nothing, and take 19 MB more for a push of 62,510
commits. 32 MiB need a sixth more CPU time."""

NO_BASE = -1
STORED_BASE = -2
"""The number in place of a base's number if the base is stored in the repository."""


def _cost(record: Record) -> int:
    return len(record.text) + len(record.key)


class RecentRecords:
    """A cache of records by kind and key, for one thread. The least recently used record is evicted first."""

    def __init__(self, limit: int = TEXT_BYTES) -> None:
        self._largest = limit // 2
        self._records = Cache[tuple[int, Key], Record](limit, _cost)

    def get(self, kind: int, key: Key) -> Record | None:
        """Return a record; None if it is not in the cache."""
        return self._records.get((kind, key))

    def put(self, record: Record) -> None:
        """Store a record, unless the cache has its key, or its text has more than half of the limit's bytes."""
        if len(record.text) <= self._largest and self.get(record.kind, record.key) is None:
            self._records.put((record.kind, record.key), record)

    def clear(self) -> None:
        """Drop all records."""
        self._records.clear()


class Frame(NamedTuple):
    """The place of a frame of the stream in the quarantined pack, and its encoding."""

    encoding: int
    offset: int
    size: int
    length: int
    """The length of the fulltext in bytes."""
    base: int
    """The number of the frame's base, `NO_BASE` or `STORED_BASE`."""
    stored: Key
    """The key of the base for `STORED_BASE`, else empty."""


class UploadIndex:
    """Finds the records of the new revisions of one stream by key. Records are numbered in order of arrival. Texts are
    read back from the quarantined pack and decoded again, except recent ones."""

    def __init__(
        self, names: Numbered, read: Callable[[int, int], bytes], stored: Callable[[int, Key], Record | None]
    ) -> None:
        """`names`: `Numbering.records`. `read`: reads bytes of the quarantined pack. `stored`: finds a record of the
        repository."""
        self._read = read
        self._stored = stored
        self._names = names
        self._copies = array("I")
        """For the first copy of a record, its newest copy; for any other copy, the copy before it."""
        self._metas = array("I")
        """The meta of each copy, as a number in `_known_metas`."""
        self._known_metas = Numbered()
        self._ordinals = array("I")
        self._encodings = bytearray()
        self._offsets = array("Q")
        self._sizes = array("I")
        self._lengths = array("I")
        self._bases = array("i")
        self._stored_keys: dict[int, Key] = {}
        self._depths = array("I")
        self._chains = array("I")
        self._lineages = array("I")
        self.recent = RecentRecords()

    def __len__(self) -> int:
        return len(self._ordinals)

    def add(self, kind: int, key: Key, meta: bytes, ordinal: int, frame: Frame, row: Row) -> int:
        """Append a copy of a record, which the revision `ordinal` introduced, and return the copy's number."""
        number = len(self._ordinals)
        first = self._names.add(ONE_BYTE[kind] + key)
        self._copies.append(number if first == number else self._copies[first])
        self._copies[first] = number
        known = self._known_metas.find(meta)
        self._metas.append(self._known_metas.add(meta) if known < 0 else known)
        encoding, offset, size, length, base, stored = frame
        self._ordinals.append(ordinal)
        self._encodings.append(encoding)
        self._offsets.append(offset)
        self._sizes.append(size)
        self._lengths.append(length)
        self._bases.append(base)
        if stored:
            self._stored_keys[number] = stored
        depth, chain_kib, lineage = row
        self._depths.append(depth)
        self._chains.append(chain_kib)
        self._lineages.append(lineage)
        return number

    def extend(self, prover: Prover, stored: int) -> None:
        """Append the records that the prover has added since the last call. `stored`: the ordinal of the prover's first
        revision."""
        names, metas, frames, (*rests, stored_keys), rows = prover.columns(len(self))
        start, copies = 0, self._copies
        for end in names[1]:
            number = len(copies)
            first = self._names.add(names[0][start:end])
            copies.append(number if first == number else copies[first])
            copies[first] = number
            start = end
        known = [self._known_metas.find(meta) for meta in metas[0]]
        known = [self._known_metas.add(meta) if at < 0 else at for meta, at in zip(metas[0], known, strict=True)]
        self._metas.extend([known[number] for number in metas[1]])
        self._ordinals.extend([stored + revision for revision in array("I", frames[0])])
        self._encodings += frames[1]
        self._offsets.frombytes(frames[2])
        for column, numbers in zip(
            (self._sizes, self._lengths, self._bases, self._depths, self._chains, self._lineages),
            (frames[3], *rests, *rows),
            strict=True,
        ):
            column.frombytes(numbers)
        self._stored_keys.update(stored_keys)

    def move(self, number: int, frame: Frame) -> None:
        """Set the place, encoding and base of copy `number`, which was encoded again."""
        self._encodings[number] = frame.encoding
        self._offsets[number] = frame.offset
        self._sizes[number] = frame.size
        self._bases[number] = frame.base
        self._stored_keys.pop(number, None)
        if frame.stored:
            self._stored_keys[number] = frame.stored

    def first(self, kind: int, key: Key) -> int | None:
        """Return the number of a record's first copy; None if the stream does not have the record."""
        found = self._names.find(ONE_BYTE[kind] + key)
        return None if found < 0 else found

    def meta(self, kind: int, key: Key) -> bytes | None:
        """Return the meta of a record's first copy; None if the stream does not have the record."""
        number = self.first(kind, key)
        return None if number is None else self._known_metas.key(self._metas[number])

    def length(self, kind: int, key: Key) -> int:
        """Return the length of a record's text in bytes; 0 if the stream does not have the record."""
        number = self.first(kind, key)
        return 0 if number is None else self._lengths[number]

    def ordinals_newest_first(self, kind: int, key: Key) -> Sequence[int]:
        """Return the ordinals of the revisions of the stream that introduced a record, the newest first."""
        found = self._names.find(ONE_BYTE[kind] + key)
        if found < 0:
            return ()
        ordinals = []
        copy = found
        while (copy := self._copies[copy]) != found:
            ordinals.append(self._ordinals[copy])
        ordinals.append(self._ordinals[found])
        return ordinals

    def row(self, number: int) -> Row:
        """Return the depth, chain and lineage of a copy."""
        return made(Row, (self._depths[number], self._chains[number], self._lineages[number]))

    def key(self, number: int) -> Key:
        """Return the key of a copy."""
        return self._names.key(number)[1:]

    def bases(self, first: int) -> Sequence[int]:
        """Return the base of each copy from number `first` on: the number of a copy, `NO_BASE` or `STORED_BASE`."""
        return self._bases[first:]

    def base(self, number: int) -> tuple[int | None, Key]:
        """Return the number and key of a copy's base. The number is None if the base is stored in the repository.
        Without a base, the number is None and the key is empty."""
        base = self._bases[number]
        return (base, self.key(base)) if base >= 0 else (None, self._stored_keys.get(number, b""))

    def record(self, kind: int, key: Key) -> Record | None:
        """Return a record of the stream or, if the stream lacks it, of the repository; None if both lack it."""
        found = self.recent.get(kind, key)
        if found is None:
            number = self.first(kind, key)
            found = self._stored(kind, key) if number is None else self._decode(number)
            if found is not None:
                self.recent.put(found)
        return found

    def _decode(self, number: int) -> Record:
        """Decode a copy of a record: follow its chain of bases to a recent, stored or full record, then decode the
        copies in reverse."""
        chain = [number]
        text = b""
        while True:
            base, key = self.base(chain[-1])
            if not key:
                break
            kind = self._names.key(number)[0]
            known = self.recent.get(kind, key) or (self._stored(kind, key) if base is None else None)
            if known is not None:
                text = known.text
                break
            if base is None:
                raise LookupError(f"the stored base {shown(key)} is gone")
            chain.append(base)
        while True:
            number = chain.pop()
            frame = self._read(self._offsets[number], self._sizes[number])
            text = decompress(self._encodings[number], frame, self._lengths[number], text)
            name = self._names.key(number)
            record = Record(name[0], name[1:], self._known_metas.key(self._metas[number]), text)
            if not chain:
                return record
            self.recent.put(record)


REBASED_DEPTH = 47
"""The largest depth of a base for a record that is encoded again. The next 16 versions then need no new encoding."""
HOPS = (32, 1024, 32768)
"""The distances, in versions, from a record back to the bases that are tried for it: powers of 32."""


class StoredBases:
    """Gives a native prover the stored revisions and records that it asks for."""

    def __init__(self, snapshot: Snapshot, ancestry: Ancestry) -> None:
        self._snapshot = snapshot
        self._ancestry = ancestry

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the ordinal of a revision; None if it is not stored."""
        return self._snapshot.ordinal(revision)

    def rows(self, names: Sequence[RecordName]) -> list[tuple[int, int, int, int] | None]:
        """Return the depth, chain, lineage and length of the lowest copy of each record; None for a record that is not
        stored."""
        found = [self._snapshot.first(kind, key) for kind, key in names]
        return [None if at is None else (at.depth, at.chain_kib, at.lineage, at.length) for at in found]

    def record(self, kind: int, key: Key) -> tuple[bytes, bytes]:
        """Return the meta and text of a stored record."""
        location = self._snapshot.first(kind, key)
        assert location is not None  # The prover asked for its row before.
        record = self._snapshot.record(location)
        return record.meta, record.text

    def is_below(self, front: Sequence[int], kind: int, key: Key) -> bool:
        """Tell whether a revision of `front`, or an ancestor of such a revision, introduced a record."""
        return self._ancestry.is_stored_below(front, self._snapshot.introducers(kind, key))

    def meta_below(self, front: Sequence[int], kind: int, key: Key) -> bytes | None:
        """Return the meta of a record; None unless a revision of `front`, or an ancestor of such a revision, introduced
        the record."""
        return self._snapshot.metas([(kind, key)])[0] if self.is_below(front, kind, key) else None


class KnownRecords:
    """The records of one stream that have arrived, and those of the snapshot against which the stream is checked."""

    def __init__(
        self, snapshot: Snapshot | None, allowance: Allowance, names: Numbered, read: Callable[[int, int], bytes]
    ) -> None:
        """`names`, `read`: as in `UploadIndex`."""
        self._snapshot = snapshot
        self._allowance = allowance
        self.stream = UploadIndex(names, read, self.stored)
        """The records of the stream."""

    def forget(self) -> None:
        """Drop the records of the stream."""
        self.stream = UploadIndex(Numbered(), lambda offset, size: b"", lambda kind, key: None)

    def row(self, entry: Entry, base_key: Key | None, before: int) -> tuple[Row, int, Key]:
        """Return the depth, chain and lineage of an entry, and its base as in `Frame`. `before`: the entry's number; a
        base in the stream must have a lower one."""
        if base_key is None:
            return Row(0, kib(entry.length), 0), NO_BASE, b""
        # The base is the lowest copy: the one in the repository if it has one, else one of the stream.
        base = None if self._snapshot is None else self.stored_row(entry.kind, base_key)
        number, stored = STORED_BASE, base_key
        if base is None:
            first = self.stream.first(entry.kind, base_key)
            if first is None or first >= before:
                raise LookupError(f"base {shown(base_key)} was found a moment ago")
            base, number, stored = self.stream.row(first), first, b""
        depth, chain_kib, lineage = base
        return made(Row, (depth + 1, chain_kib + kib(entry.length), lineage + 1)), number, stored

    def encode_anew(
        self, proof: SegmentProof, entry: Entry, record: Record, row: Row, base_key: Key
    ) -> tuple[tuple[Entry, bytes], Row]:
        """Encode a record again, against a base in its own chain that is one of the `HOPS` away, or without a base."""
        chain = list(self._chain(entry.kind, base_key))
        for hop in HOPS:
            wanted = max(0, row.lineage - hop)
            # `links` is not empty: the lineage of the base itself is only one less.
            links = [link for link in chain if link[0].lineage >= wanted]
            chosen, place = min(links, key=lambda link: link[0].lineage)
            chain_kib = chosen.chain_kib + kib(entry.length)
            if chosen.depth > REBASED_DEPTH or chain_kib > MAX_CHAIN >> 10:
                continue
            base = self._link(entry.kind, place)
            if not proof.introduced(entry.kind, base.key):
                continue  # The chain may go through a copy of another branch.
            encoding, frame = compress(record.text, base.text)
            if encoding == STORED:
                break
            based = entry._replace(encoding=encoding, base=BaseTag.FULL_KEY, base_key=base.key, frame_length=len(frame))
            return (based, frame), Row(chosen.depth + 1, chain_kib, row.lineage)
        encoding, frame = compress(record.text)
        full = entry._replace(encoding=encoding, base=BaseTag.NONE, base_key=b"", frame_length=len(frame))
        return (full, frame), Row(0, kib(entry.length), row.lineage)

    def _chain(self, kind: int, key: Key | None) -> Iterator[tuple[Row, int | Location]]:
        """Yield the row and place of a record and of each base in its chain. A place is a number in the stream, or a
        location in the repository."""
        while key:
            location = None if self._snapshot is None else self._snapshot.first(kind, key)
            while location is not None and self._snapshot is not None:
                yield Row(location.depth, location.chain_kib, location.lineage), location
                location, key = self._snapshot.base(location), None
            number = self.stream.first(kind, key) if key else None
            if number is None:
                break
            yield self.stream.row(number), number
            _, key = self.stream.base(number)

    def _link(self, kind: int, place: int | Location) -> Record:
        if isinstance(place, int):
            return self.record(kind, self.stream.key(place))
        assert self._snapshot is not None  # The place is in it.
        return self._snapshot.record(place)

    def copies(self, kind: int, key: Key) -> Iterable[int]:
        """Return the ordinals of the revisions that introduced a record."""
        came = self.stream.ordinals_newest_first(kind, key)  # The newest is the likeliest to be an ancestor.
        if len(came) > 1:
            self._allowance.charge(len(came) >> 2)  # Four are listed in the time of a step.
        return came if self._snapshot is None else chain(came, self._snapshot.introducers(kind, key))

    def metas(self, places: Sequence[tuple[int, Key]]) -> list[bytes]:
        """Return the metas of records that are in the stream or stored."""
        came = [self.stream.meta(*place) for place in places]
        stored = [place for place, meta in zip(places, came, strict=True) if meta is None]
        rest = iter(self._snapshot.metas(stored) if self._snapshot is not None else ())
        return [next(rest) if meta is None else meta for meta in came]

    def measure(self, kind: int, key: Key) -> tuple[bytes, int] | None:
        """Return the meta and the text length of a record of the stream or repository, without decoding it; None if
        both lack the record."""
        number = self.stream.first(kind, key)
        if number is None and not self.is_stored(kind, key):
            return None
        return self.metas([(kind, key)])[0], self.text_length(kind, key)

    @contextlib.contextmanager
    def read(self, kind: int, key: Key) -> Iterator[Record]:
        """Yield a record of the stream or repository. Decoding is charged to the request, and waits for its turn if the
        record is large (`parts.turn`)."""
        if self.stream.recent.get(kind, key) is not None:
            yield self.record(kind, key)
            return
        number = self.stream.first(kind, key)
        base_length: Callable[[], int]
        if number is not None:
            row = self.stream.row(number)
            base_length = partial(self.text_length, kind, self.stream.base(number)[1])
        else:
            snapshot = self._snapshot
            location = None if snapshot is None else snapshot.first(kind, key)
            if snapshot is None or location is None:
                raise LookupError(f"record {shown(key)} was found a moment ago")
            row = Row(location.depth, location.chain_kib, location.lineage)
            base_length = partial(_base_length, snapshot, location)
        self._allowance.decode(row.chain_kib << 10)
        with parts.turn(row.chain_kib, self.text_length(kind, key), base_length, self._allowance):
            yield self.record(kind, key)

    def record(self, kind: int, key: Key) -> Record:
        """Return a record that is known to be in the stream or repository."""
        found = self.stream.record(kind, key)
        if found is None:
            raise LookupError(f"base {shown(key)} was found a moment ago")
        return found

    def stored(self, kind: int, key: Key) -> Record | None:
        """Return a record of the snapshot, or None."""
        location = None if self._snapshot is None else self._snapshot.first(kind, key)
        if location is None or self._snapshot is None:
            return None
        return self._snapshot.record(location)

    def is_stored(self, kind: int, key: Key) -> bool:
        """Tell whether the snapshot has a record."""
        return self.stored_row(kind, key) is not None

    def stored_row(self, kind: int, key: Key) -> Row | None:
        """Return the depth, chain and lineage of a record of the snapshot, or None."""
        return None if self._snapshot is None else self._snapshot.first_row(kind, key)

    def text_length(self, kind: int, key: Key | None) -> int:
        """Return the length of a record's text in bytes; 0 if `key` is None."""
        if key is None:
            return 0
        stored = None if self._snapshot is None else self._snapshot.first(kind, key)
        return self.stream.length(kind, key) if stored is None else stored.length


def _base_length(snapshot: Snapshot, location: Location) -> int:
    base = snapshot.base(location)
    return 0 if base is None else base.length
