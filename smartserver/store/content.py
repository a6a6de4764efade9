"""`ContentReader`: an answer put together from records, where a reader asked for less than whole revisions.

It is a bulk stream (`records.bulk`) of segments that are not those of the repository: the id and the parents are a
revision's, the records those that were asked for, each stored whole and sent once. First come the revisions, then the
trees, and with each tree the earlier texts of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from smartserver.errors import CorruptRecord
from smartserver.records.bulk import BulkWriter
from smartserver.records.check import make_check, rules_of
from smartserver.records.content import Content
from smartserver.records.model import BaseTag, Entry, Key, Parent, Record, RevisionId
from smartserver.records.segment import STORED, encode_segment
from smartserver.store.model import ContentPlan
from smartserver.store.snapshot import Snapshot

PART_BYTES = 4 << 20
"""Bytes of text after which a tree goes on in another segment: neither side holds much more."""

PART_RECORDS = 4096
"""Records after which it does."""


class ContentReader:
    """The bytes of the answer to a `ContentPlan`, front to back; for one thread at a time."""

    def __init__(self, snapshot: Snapshot, content: Content, plan: ContentPlan) -> None:
        self.segments = 0
        """Sent so far."""
        self.size = 0
        """Bytes read so far."""
        self._snapshot = snapshot
        self._plan = plan
        self._content = content
        self._sent: set[tuple[int, Key]] = set()
        self._pieces = self._compressed()
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end.

        Raises:
            CorruptFile, CorruptRecord: a record cannot be read.
            NoSuchFile: a pack not opened before is gone.
            TransportFailed: the store failed.
        """
        gathered = [self._rest]
        length = len(self._rest)
        while length < size and (piece := next(self._pieces, None)) is not None:
            gathered.append(piece)
            length += len(piece)
        joined = b"".join(gathered)
        self._rest = joined[size:]
        read = joined[:size]
        self.size += len(read)
        return read

    def _compressed(self) -> Iterator[bytes]:
        bulk = BulkWriter()
        for segment in self._segments():
            self.segments += 1
            yield bulk.add(segment)
        yield bulk.finish()

    def _segments(self) -> Iterator[bytes]:
        graph, plan = self._snapshot.graph, self._plan
        for ordinal in plan.revisions:
            yield self._segment(ordinal, [] if plan.bare else self._described(graph.revision(ordinal)))
        for revision in self._trees():
            yield from self._tree(revision)

    def _trees(self) -> Iterator[RevisionId]:
        """The revisions whose trees are sent, each once."""
        graph, plan = self._snapshot.graph, self._plan
        wanted = dict.fromkeys(plan.trees.of)
        if plan.trees.each:
            for ordinal in plan.revisions:
                near = [ordinal, *graph.parents(ordinal)[:1]]
                wanted.update(dict.fromkeys(graph.revision(each) for each in near))
        return iter(wanted)

    def _tree(self, revision: RevisionId) -> Iterator[bytes]:
        snapshot, trees, content = self._snapshot, self._plan.trees, self._content
        ordinal = snapshot.ordinal(revision)
        assert ordinal is not None  # The plan found it in this snapshot.
        texts: list[Key] = []

        def records() -> Iterator[Record]:
            yield from self._described(revision)
            try:
                for kind, key in content.tree(self._read, revision, trees.paths):
                    if kind == content.text:
                        texts.append(key)
                        if not trees.texts or trees.versions:
                            continue
                    yield from self._once(kind, key)
            except ValueError as wrong:
                raise CorruptRecord(revision, revision, f"its tree cannot be read: {wrong}") from wrong

        yield from self._cut(ordinal, records())
        if trees.versions:
            for text in texts:
                yield from self._versions(text)

    def _versions(self, text: Key) -> Iterator[bytes]:
        """A file's text and those before it, each in a segment of its revision."""
        content, snapshot = self._content, self._snapshot
        for revision, key in content.versions(self._read, text):
            ordinal = snapshot.ordinal(revision)
            if ordinal is None:  # A ghost's text came with another revision.
                location = snapshot.first(content.text, key)
                assert location is not None  # It was read a moment ago.
                ordinal = location.ordinal
            records = [*self._described(snapshot.revision(ordinal)), *self._once(content.text, key)]
            if records:
                yield self._segment(ordinal, records)

    def _described(self, revision: RevisionId) -> list[Record]:
        """What a revision says of itself."""
        return [record for kind in self._content.described for record in self._once(kind, revision)]

    def _once(self, kind: int, key: Key) -> Iterator[Record]:
        """A record that was not sent before; nothing where it is not stored."""
        if (kind, key) not in self._sent:
            self._sent.add((kind, key))
            record = self._read(kind, key)
            if record is not None:
                yield record

    def _read(self, kind: int, key: Key) -> Record | None:
        location = self._snapshot.first(kind, key)
        return None if location is None else self._snapshot.record(location)

    def _cut(self, ordinal: int, records: Iterable[Record]) -> Iterator[bytes]:
        """Segments of a bounded size."""
        gathered: list[Record] = []
        size = 0
        for record in records:
            gathered.append(record)
            size += len(record.text)
            if size >= PART_BYTES or len(gathered) >= PART_RECORDS:
                yield self._segment(ordinal, gathered)
                gathered, size = [], 0
        if gathered:
            yield self._segment(ordinal, gathered)

    def _segment(self, ordinal: int, records: Iterable[Record]) -> bytes:
        kinds = self._snapshot.root.kinds
        entries, frames = [], []
        for kind, key, meta, text in records:
            check = make_check(kinds[kind], key, meta, text)
            entries.append(Entry(kind, STORED, key, meta, BaseTag.NONE, b"", len(text), len(text), check))
            frames.append(text)
        return encode_segment(self._snapshot.revision(ordinal), self._parents(ordinal), entries, frames, kinds)

    def _parents(self, ordinal: int) -> tuple[Parent, ...]:
        graph = self._snapshot.graph
        if not rules_of(self._snapshot.root.vcs).ghosts:
            return tuple(Parent(graph.revision(parent)) for parent in graph.parents(ordinal))
        return self._snapshot.parents(ordinal)
