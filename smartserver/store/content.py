"""`ContentReader`: an answer put together from records, where a reader asked for less than whole revisions.

It is a bulk stream (`records.bulk`) of segments that are not those of the repository: the id and the parents are a
revision's, the records those that were asked for, each stored whole and sent once. First come the revisions, then the
trees, and with each tree the earlier texts of its files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from smartserver.errors import CorruptRecord
from smartserver.records.bulk import BulkWriter
from smartserver.records.check import make_check
from smartserver.records.content import Content, Had
from smartserver.records.model import BaseTag, Entry, Key, Record, RevisionId
from smartserver.records.segment import STORED, encode_segment
from smartserver.store.model import ContentPlan
from smartserver.store.snapshot import Snapshot

PART_BYTES = 4 << 20
"""Bytes of text after which a tree goes on in another segment: neither side holds much more."""

PART_RECORDS = 4096
"""Records after which it does."""


class ContentReader:
    """The bytes of the answer to a `ContentPlan`, front to back; for one thread at a time."""

    def __init__(
        self, snapshot: Snapshot, content: Content, plan: ContentPlan, go_on: Callable[[], None] = lambda: None
    ) -> None:
        """`go_on` is called for each record that is read, and ends the reading by what it raises: a piece of the answer
        may take minutes."""
        self.segments = 0
        """Sent so far."""
        self.size = 0
        """Bytes read so far."""
        self._snapshot = snapshot
        self._plan = plan
        self._content = content
        self._go_on = go_on
        self._sent: set[tuple[int, Key]] = set()
        self._walked: set[Key] = set()
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
        snapshot, plan = self._snapshot, self._plan
        last = len(plan.revisions) - plan.ends
        for at, ordinal in enumerate(plan.revisions):
            is_end = at < plan.ends or at >= last
            bare = plan.bare and not (is_end or (plan.merges and len(snapshot.graph.parents(ordinal)) > 1))
            yield self._segment(ordinal, [] if bare else self._described(snapshot.revision(ordinal)))
        pairs = self._pairs()
        changed = self._changed(pairs) if plan.trees.changed else None
        named = plan.trees.of
        if plan.trees.changed and len(named) > 1 and len(set(named)) == 1:
            named = ()
        wanted = dict.fromkeys([*named, *itertools.chain.from_iterable(pairs if named or plan.trees.each else ())])
        also = self._named(wanted) if len(wanted) > 1 and plan.trees.paths else set()
        had: Had | None = None
        for revision in dict.fromkeys(plan.trees.had):
            if snapshot.ordinal(revision) is not None:
                yield from self._inventory(revision)
                if wanted:
                    had = had or self._content.had(self._read)
                    with _reading(revision):
                        had.add(revision)
        for revision in wanted:
            shared: set[Key] = set()
            if had is not None:
                with _reading(revision):
                    pages, shared = had.shared(revision)
                self._walked |= pages  # The walk will not enter them.
            yield from self._tree(revision, changed, also, shared)
        if plan.trees.files:
            yield from self._files(plan.trees.files)

    def _pairs(self) -> list[tuple[RevisionId, ...]]:
        """The revisions whose trees are compared: a chosen one and its first parent, where that is here; neighbours."""
        snapshot, plan = self._snapshot, self._plan
        named = plan.trees.of
        pairs: list[tuple[RevisionId, ...]] = [named] if len(named) == 1 else list(itertools.pairwise(named))
        for ordinal in plan.revisions if plan.trees.each else ():
            before = snapshot.first_parent(ordinal)
            near = [ordinal] if before is None else [ordinal, before]
            pairs.append(tuple(map(snapshot.revision, near)))
        return pairs

    def _named(self, revisions: Iterable[RevisionId]) -> set[bytes]:
        """What lies at the paths in any of some trees: it may have been moved between them."""
        paths = [path for path in self._plan.trees.paths or () if path]
        found: set[bytes] = set()
        for revision in revisions:
            with _reading(revision):
                found |= self._content.named(self._read, revision, paths)
        return found

    def _changed(self, pairs: Iterable[tuple[RevisionId, ...]]) -> set[Key]:
        """The texts that one tree of a pair has and the other has not."""
        found: set[Key] = set()
        for pair in pairs:
            with _reading(pair[0]):
                found.update(self._content.changed(self._read, pair[0], pair[1] if len(pair) > 1 else None))
        return found

    def _inventory(self, revision: RevisionId) -> Iterator[bytes]:
        """What says which tree a revision has, and nothing of that."""
        ordinal = self._snapshot.ordinal(revision)
        assert ordinal is not None  # Else it is not among those that are had.
        with _reading(revision):
            places = list(self._content.tree(self._read, revision, (), set()))
        records = [*self._described(revision), *[each for kind, key in places for each in self._once(kind, key)]]
        yield self._segment(ordinal, records)

    def _files(self, keys: Iterable[Key]) -> Iterator[bytes]:
        """Texts that were asked for by their keys, in the segments of what brought them."""
        snapshot, content = self._snapshot, self._content
        for key in keys:
            brought = snapshot.ordinal(content.bringer(key))
            if brought is not None:
                bringer = snapshot.revision(brought)
                yield from self._cut(brought, [*self._once(content.text, key), *self._described(bringer)])

    def _tree(
        self,
        revision: RevisionId,
        changed: Collection[Key] | None,
        also: Collection[bytes],
        had: Collection[Key],
    ) -> Iterator[bytes]:
        """`changed`: the texts to be sent; None: all but those in `had`. `also`: what has a place of its own here."""
        snapshot, trees, content = self._snapshot, self._plan.trees, self._content
        ordinal = snapshot.ordinal(revision)
        assert ordinal is not None  # The plan found it in this snapshot.
        texts: list[Key] = []
        bringers: dict[int, None] = {}

        def records() -> Iterator[Record]:
            yield from self._described(revision)
            brought_by: set[RevisionId] | None = set() if trees.bringers else None
            with _reading(revision):
                for kind, key in content.tree(self._read, revision, trees.paths, self._walked, also, brought_by):
                    if kind == content.text:
                        if key in had or (changed is not None and key not in changed):
                            continue
                        texts.append(key)
                        if not trees.texts or trees.versions:
                            continue
                        if trees.changed and (brought := snapshot.ordinal(content.bringer(key))) is not None:
                            bringers[brought] = None
                    yield from self._once(kind, key)
            here = [each for name in brought_by or () if (each := snapshot.ordinal(name)) is not None]
            bringers.update(dict.fromkeys(sorted(here)))
            for text in texts if trees.versions else ():
                for bringer, key in content.versions(self._read, text):
                    found = snapshot.ordinal(bringer)
                    if found is not None:  # A ghost has a text, and says nothing of itself.
                        bringers[found] = None
                    yield from self._once(content.text, key)

        # Texts side by side, and revisions after them: what is alike compresses better the nearer it is.
        yield from self._cut(ordinal, records())
        for found in bringers:
            described = self._described(snapshot.revision(found))
            if described:
                yield self._segment(found, described)

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
        self._go_on()
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
        return encode_segment(self._snapshot.revision(ordinal), self._snapshot.parents(ordinal), entries, frames, kinds)


@contextmanager
def _reading(revision: RevisionId) -> Iterator[None]:
    """What cannot be read is damage of this revision's tree.

    Raises:
        CorruptRecord: so it is.
    """
    try:
        yield
    except ValueError as wrong:
        raise CorruptRecord(revision, revision, f"its tree cannot be read: {wrong}") from wrong
