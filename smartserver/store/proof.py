"""What a new revision must prove: that its records rest on and refer to nothing but what comes with it or before it.

A record's base, and each record it refers to, must be introduced by the same revision or an ancestor. What a base from
an ancestor refers to was proved when that came, so the proof costs what a revision changed, not what it holds; and it
mostly asks the graph for nothing but parents: a commit's base is one, the trees' bases are what that refers to, and so
on down to the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from smartserver.errors import CorruptRecord, MissingReference, WrongParents, shown
from smartserver.records.model import BaseTag, Entry, Key, Record, Segment
from smartserver.records.rules import Rules
from smartserver.store.ancestry import Reach

REFERENCES_KEPT = 200_000
"""Keys kept of what recent records refer to, some 20 MB: nearly every base is a record seen a moment ago."""

References = tuple[int, frozenset[Key]]
"""The kind a record refers to, and the keys."""

NOTHING: Final[References] = (0, frozenset())


class ReferenceCache:
    """What records refer to, the least recently used dropped first; only where the key is proof of the text."""

    def __init__(self, limit: int = REFERENCES_KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[tuple[int, Key], tuple[bytes, References]] = OrderedDict()

    def get(self, kind: int, key: Key, meta: bytes | None = None) -> References | None:
        """What is kept of that record; nothing where it had another meta, which the key need not prove."""
        found = self._found.get((kind, key))
        if found is None or (meta is not None and found[0] != meta):
            return None
        self._found.move_to_end((kind, key))
        return found[1]

    def put(self, kind: int, key: Key, meta: bytes, found: References) -> None:
        """Keep what a record refers to."""
        if (kind, key) in self._found:
            return
        self._found[kind, key] = meta, found
        self._size += len(found[1]) + 1
        while self._size > self._limit:
            _, (_, dropped) = self._found.popitem(last=False)
            self._size -= len(dropped[1]) + 1


def check_own_record(rules: Rules, segment: Segment, own: Record | None) -> None:
    """Check that a segment states the parents its revision's own record names; `own`: that record, where it came.

    Raises:
        CorruptRecord: the revision's own record is not in the segment or cannot be read, or another's is there.
        WrongParents: it names others, or one is marked absent that it names, in a system whose parents cannot be.
    """
    if rules.own_kind is None:
        return
    revision = segment.revision
    if own is None:
        raise CorruptRecord(revision, revision, "the record that is the revision itself is not in its segment")
    if rules.of_revision:
        for entry in segment.entries:
            if entry.kind in rules.of_revision and entry.key != revision:
                raise CorruptRecord(revision, entry.key, "it belongs to another revision")
    try:
        named = rules.own_parents(own.key, own.meta, own.text)
    except ValueError as wrong:
        raise CorruptRecord(revision, own.key, str(wrong)) from wrong
    if named != tuple(parent.id for parent in segment.parents):
        raise WrongParents(revision)
    if not rules.ghosts and any(parent.absent for parent in segment.parents):
        raise WrongParents(revision)


class SegmentProof:
    """The proof of one segment: its entries in order, then `finish`.

    `reach`: the revision and its ancestors. `copies`: the ordinals of the revisions before this one that introduced a
    record.
    """

    def __init__(
        self,
        rules: Rules,
        segment: Segment,
        reach: Reach,
        copies: Callable[[int, Key], Iterable[int]],
        cache: ReferenceCache,
    ) -> None:
        self.revision = segment.revision
        """Whose proof it is."""
        self._rules = rules
        self._segment = segment
        self._reach = reach
        self._copies = copies
        self._cache = cache
        self.own: Record | None = None
        """The record that is the revision itself, once it came."""
        self._own: set[tuple[int, Key]] = set()
        self._granted: list[References] = []
        """What records of ancestors refer to."""
        self._needed: list[tuple[Entry, References]] = []

    def base(self, entry: Entry) -> Key | None:
        """The key of an entry's base; None where it has none.

        Raises:
            UnreachableBase: neither this revision, before that entry, nor an ancestor introduced it.
        """
        if entry.base == BaseTag.NONE:
            return None
        key = self._segment.base_of(entry)
        if not self.introduced(entry.kind, key):
            raise UnreachableBase(key)
        return key

    def introduced(self, kind: int, key: Key) -> bool:
        """Whether this revision, in the entries so far, or an ancestor introduced that record."""
        return (kind, key) in self._own or self._reaches(kind, key)

    def claim(self, entry: Entry) -> None:
        """Take an entry as introduced without looking at what it is."""
        self._own.add((entry.kind, entry.key))

    def add(self, entry: Entry, record: Record, base: Record | None) -> None:
        """Take an entry that was found to be what its key says; `base`: the record it is based on, if any.

        Raises:
            CorruptRecord: it cannot be read.
        """
        if base is None or entry.kind not in self._rules.content_keys:
            # What a base refers to is remembered where its key is proof; to read it again costs more than to ask.
            self._need(entry, self.references(record), NOTHING)
            return
        try:
            changes = self._rules.changes(entry.kind, entry.meta, record.text, base.text)
        except ValueError as wrong:
            raise CorruptRecord(self.revision, record.key, str(wrong)) from wrong
        if changes is None:
            self._need(entry, self.references(record), self.references(base))
        else:
            kind, now, before = changes
            self._need(entry, (kind, now), (kind, before))

    def add_repeat(self, entry: Entry, base_key: Key | None) -> bool:
        """Take an entry whose bytes were proved before; False, and not taken, where its text must be looked into."""
        needed = NOTHING
        if self._rules.may_refer(entry.kind, entry.meta):
            cached = self._cache.get(entry.kind, entry.key, entry.meta)
            if cached is None:
                return False
            needed = cached
        granted = self._cache.get(entry.kind, base_key) if needed[1] and base_key is not None else None
        self._need(entry, needed, granted or NOTHING)
        return True

    def _need(self, entry: Entry, needed: References, granted: References) -> None:
        """Note what an entry refers to; `granted`: what its base does, which was proved with that."""
        self.claim(entry)
        kind, keys = needed
        if granted[1]:
            base = (entry.kind, self._segment.base_of(entry))
            if base not in self._own:
                self._granted.append(granted)
            if granted[0] == kind:
                keys -= granted[1]
        if keys:
            self._needed.append((entry, (kind, keys)))

    def references(self, record: Record) -> References:
        """What a record refers to.

        Raises:
            CorruptRecord: it cannot be read.
        """
        found = self._cache.get(record.kind, record.key, record.meta)
        if found is None:
            rules = self._rules
            try:
                kind, keys = rules.references(record.kind, record.key, record.meta, record.text)
            except ValueError as wrong:
                raise CorruptRecord(self.revision, record.key, str(wrong)) from wrong
            found = (kind, frozenset(keys)) if keys else NOTHING
            if record.kind in rules.content_keys and rules.may_refer(record.kind, record.meta):
                self._cache.put(record.kind, record.key, record.meta, found)
        return found

    def finish(self) -> None:
        """Prove that everything referred to is here.

        Raises:
            MissingReference: it is not.
        """
        proved: set[tuple[int, Key]] = set()
        for entry, (kind, keys) in self._needed:
            for key in keys:
                place = (kind, key)
                if place in self._own or place in proved:
                    continue
                if not self._reaches(kind, key):
                    raise MissingReference(self.revision, entry.key, key)
                proved.add(place)

    def _reaches(self, kind: int, key: Key) -> bool:
        # Loops, not `any`: asked three times a record.
        for granted, keys in self._granted:
            if kind == granted and key in keys:
                return True
        has = self._reach.has
        for ordinal in self._copies(kind, key):  # noqa: SIM110
            if has(ordinal):
                return True
        return False


class UnreachableBase(Exception):
    """A base that neither the revision nor an ancestor introduced; never crosses the wire."""

    def __init__(self, key: Key) -> None:
        super().__init__(shown(key))
        self.key = key
