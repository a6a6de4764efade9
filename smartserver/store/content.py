"""`ContentReader`: an answer that is made of single records, for a client that asked for less than whole revisions.

The answer is a bulk stream (`records.bulk`) of segments that differ from the stored ones. Each has the id and the
parents of a revision, and the records that the system named. A record is sent once: in full, or on a base that the
system also named.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from smartserver.errors import CorruptRecord, shown
from smartserver.records.bulk import BulkWriter
from smartserver.records.check import make_check
from smartserver.records.content import Text
from smartserver.records.delta import compress, usable_base
from smartserver.records.hunks import Buffer
from smartserver.records.model import BaseTag, Entry, Key, Piece, Record, RecordName, RefValue, RevisionId, SentRecord
from smartserver.records.segment import STORED, encode_header
from smartserver.store.allowance import Allowance
from smartserver.store.model import KnownVersion
from smartserver.store.parts import LARGE
from smartserver.store.snapshot import Snapshot

PART_BYTES = 4 << 20
"""The bytes of text after which a piece continues in another segment, so that neither side has much more in memory."""

AHEAD = 256
"""The number of records that are read together from a remote store."""

PART_RECORDS = 4096
"""The number of records after which a piece continues in another segment."""


class _Ready(NamedTuple):
    """A record in the encoding in which it is sent."""

    kind: int
    key: Key
    text: Text
    encoding: int = STORED
    base: Key = b""
    """The key of the record's base; empty if the record is sent in full."""


class SnapshotView:
    """The view of a repository that a system reads for a request (`records.content.RepositoryView`). It charges the
    reads to the request."""

    def __init__(
        self,
        refs: Callable[[], Mapping[bytes, RefValue]],
        values: Callable[[str], Mapping[bytes, bytes]],
        snapshot: Snapshot,
        allowance: Allowance,
    ) -> None:
        """`refs`: returns the refs. `values`: returns the entries of a map, by its name. Both include the request's
        changes so far."""
        self.refs = refs
        self.map = values
        self.snapshot = snapshot
        self._allowance = allowance
        allowance.reads(*snapshot.extent)

    def charge(self, steps: int, size: int = 0) -> None:
        self._allowance.charge(steps)
        if size:
            self._allowance.decode(size)

    def changed(self, name: str, known: tuple[bytes, int, int]) -> frozenset[bytes] | None:
        return self.snapshot.state.changed_keys(name, KnownVersion(*known))

    def setting(self, name: str) -> bytes | None:
        return self.snapshot.state.settings.get(name)

    def ordinal(self, revision: RevisionId) -> int | None:
        self._allowance.charge(1)
        return self.snapshot.ordinal(revision)

    def revision(self, ordinal: int) -> RevisionId:
        self._allowance.charge(1)
        return self.snapshot.revision(ordinal)

    def parents(self, ordinal: int) -> Sequence[int]:
        self._allowance.charge(1)
        return self.snapshot.graph.parents(ordinal)

    def first_parent(self, ordinal: int) -> int | None:
        self._allowance.charge(1)
        return self.snapshot.first_parent(ordinal)

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int] = ()) -> Sequence[int]:
        return self.snapshot.graph.missing(wants, haves, absent, self._allowance.charge)

    def newest_first(self, wants: Sequence[int], haves: Sequence[int]) -> Iterator[int]:
        """Yield the ordinals of `wants` and their ancestors, except `haves` and their ancestors, descending. The walk
        is lazy."""
        return self.snapshot.graph.newest_first(wants, haves, charge=self._allowance.charge)

    def record(self, kind: int, key: Key) -> Record | None:
        self._allowance.charge(1)
        return self.snapshot.lookup(kind, key, self._allowance.decode)

    def text(self, kind: int, key: Key) -> Text | None:
        self._allowance.charge(1)
        return self.snapshot.text(kind, key, self._allowance.decode)

    def prefetch(self, names: Iterable[RecordName]) -> None:
        if self.snapshot.is_remote:
            found = (self.snapshot.first(*name) for name in names)
            self.snapshot.fetch([location for location in found if location is not None])

    def framed(self, kind: int, key: Key) -> tuple[Entry, bytes] | None:
        """Return the header and the frame of a record whose header has the key of its base; None for any other
        record."""
        self._allowance.charge(1)
        return self.snapshot.framed(kind, key)

    def length(self, kind: int, key: Key) -> int | None:
        self._allowance.charge(1)
        location = self.snapshot.first(kind, key)
        return None if location is None else location.length


class PartReader:
    """Reads the bytes of parts in order. Each part is created when it is needed. A reader must be used by one thread at
    a time."""

    def __init__(self, parts: Iterator[Buffer], piece: int = sys.maxsize) -> None:
        """`piece`: the most bytes that the first `read` returns. Each further `read` may return twice as many as the
        previous one."""
        self.segments = 0
        self.size = 0
        self._parts = parts
        self._rest: Buffer = b""
        """The unread bytes of the last part."""
        self._piece = piece

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; empty at the end."""
        gathered: list[Buffer] = []
        missing = min(size, self._piece)
        self._piece = max(self._piece, 2 * missing)
        while missing and (part := self._rest or next(self._parts, None)) is not None:
            self._rest = b""
            if len(part) > missing:
                # Views, so that the rest is not copied at each read.
                view = memoryview(part)
                part, self._rest = view[:missing], view[missing:]
            gathered.append(part)
            missing -= len(part)
        read = b"".join(gathered)
        if len(self._rest) <= LARGE:
            self._rest = bytes(self._rest)  # A view would keep a whole large text in memory.
        self.size += len(read)
        return read


class ContentReader(PartReader):
    """Reads the bulk stream of an answer that is made of pieces, each one or several segments."""

    def __init__(self, moment: SnapshotView, pieces: Iterable[Piece]) -> None:
        super().__init__(self._compress())
        self._moment = moment
        self._pieces = pieces
        self._sent: set[RecordName] = set()

    def _compress(self) -> Iterator[bytes]:
        bulk = BulkWriter()
        for ordinal, sent in self._pieces:
            self._moment.charge(1)
            for records in self._cut(sent) if sent != () else [[]]:
                self.segments += 1
                for part in self._segment(ordinal, records):
                    yield bulk.add(part)
        yield bulk.finish()

    def _cut(self, records: Iterable[SentRecord]) -> Iterator[list[_Ready]]:
        """Yield the records of a piece that were not sent before, in one list for each segment."""
        gathered: list[_Ready] = []
        size = 0
        for named in self._ahead(records):
            self._moment.charge(1)
            name = named[:2]
            if name in self._sent:
                continue
            ready = self._as_it_lies(named) or self._encoded(named)
            self._sent.add(name)
            gathered.append(ready)
            size += ready.text.length
            if size >= PART_BYTES or len(gathered) >= PART_RECORDS:
                yield gathered
                gathered, size = [], 0
        if gathered:
            yield gathered

    def _ahead(self, records: Iterable[SentRecord]) -> Iterator[SentRecord]:
        """Yield the given records. In a remote store, read `AHEAD` of them together."""
        rest = iter(records)
        while some := list(itertools.islice(rest, AHEAD)):
            self._moment.prefetch([named[:2] for named in some if named[:2] not in self._sent])
            yield from some

    def _as_it_lies(self, named: SentRecord) -> _Ready | None:
        """Return a record with its stored frame. Return None if the store is remote, `named` has no base, or the client
        lacks the base of the frame."""
        of_base = len(named) == 3 and not self._moment.snapshot.is_remote  # Behind a link a record is read only once.
        entry = self._moment.framed(*named[:2]) if of_base else None
        if entry is None or (entry[0].base_key != named[-1] and (entry[0].kind, entry[0].base_key) not in self._sent):
            return None
        said, frame = entry
        text = Text(said.meta, said.length, (frame,), said.check)
        return _Ready(said.kind, said.key, text, said.encoding, said.base_key)

    def _encoded(self, named: SentRecord) -> _Ready:
        """Return a record, encoded against its named base if that makes it shorter and neither text is large, else in
        full."""
        text = self._moment.text(*named[:2])
        if text is None:
            raise CorruptRecord(b"", named[1], f"record {shown(named[1])} is missing from the repository")
        if len(named) == 3 and text.length <= LARGE and isinstance(text.parts, tuple):
            kind, key, base_key = named
            base = self._moment.text(kind, base_key)
            whole = b"".join(text.parts)
            text = text._replace(parts=(whole,))
            if base is not None and base.length <= LARGE:
                under = b"".join(base.parts)
                if usable_base(whole, under):
                    encoding, frame = compress(whole, under)
                    if encoding != STORED:
                        return _Ready(kind, key, text._replace(parts=(frame,)), encoding, base_key)
        return _Ready(*named[:2], text)

    def _segment(self, ordinal: int, records: Sequence[_Ready]) -> Iterator[Buffer]:
        """Yield a segment: its header, then the frames."""
        snapshot = self._moment.snapshot
        kinds = snapshot.state.kinds
        entries = []
        size = 0
        for kind, key, text, encoding, base in records:
            check = text.check
            if not check and not base and isinstance(text.parts, tuple):
                check = make_check(kinds[kind], key, text.meta, b"".join(text.parts))
            frame_length = sum(map(len, text.parts)) if base and isinstance(text.parts, tuple) else text.length
            tag = BaseTag.FULL_KEY if base else BaseTag.NONE
            entries.append(Entry(kind, encoding, key, text.meta, tag, base, text.length, frame_length, check))
            size += frame_length
        yield encode_header(snapshot.revision(ordinal), snapshot.parents(ordinal), entries, size, kinds)
        for record in records:
            yield from record.text.parts
