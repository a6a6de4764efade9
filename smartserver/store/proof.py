"""What a new revision must prove: that its records rest on and refer to nothing but what comes with it or before it.

A record's base, and each record it refers to, must be introduced by the same revision or an ancestor. What a base from
an ancestor refers to was proved when that came, so the proof costs what a revision changed, not what it holds; and it
mostly asks the graph for nothing but parents: a commit's base is one, the trees' bases are what that refers to, and so
on down to the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from smartserver.errors import CorruptRecord, MissingReference, WrongParents
from smartserver.records.check import may_refer, own_parents, references, revision_record
from smartserver.records.model import BaseTag, Entry, Key, Kind, Record, RevisionId, Segment
from smartserver.store.ancestry import Reach

REFERENCES_KEPT = 200_000
"""Keys kept of what recent records refer to, some 20 MB: nearly every base is a record seen a moment ago."""

NOTHING: frozenset[Key] = frozenset()


class ReferenceCache:
    """What records refer to, the least recently used dropped first; keyed by kind and key, so only for content keys."""

    def __init__(self, limit: int = REFERENCES_KEPT) -> None:
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[tuple[int, Key], frozenset[Key]] = OrderedDict()

    def get(self, kind: int, key: Key) -> frozenset[Key] | None:
        """What is kept of that record."""
        found = self._found.get((kind, key))
        if found is not None:
            self._found.move_to_end((kind, key))
        return found

    def put(self, kind: int, key: Key, found: frozenset[Key]) -> None:
        """Keep what a record refers to."""
        if (kind, key) in self._found:
            return
        self._found[kind, key] = found
        self._size += len(found) + 1
        while self._size > self._limit:
            _, dropped = self._found.popitem(last=False)
            self._size -= len(dropped) + 1


def check_own_record(vcs: str, kinds: Sequence[Kind], segment: Segment, own: Record | None) -> None:
    """Check that a segment states the parents its revision's own record names; `own`: that record, where it came.

    Raises:
        CorruptRecord: the revision's own record is not in the segment, or cannot be read.
        WrongParents: it names others, or one is marked absent that it names.
    """
    kind = revision_record(vcs)
    if kind is None:
        return
    revision = segment.revision
    if own is None:
        raise CorruptRecord(revision, revision, "the record that is the revision itself is not in its segment")
    try:
        named = own_parents(kinds[kind], own.key, own.meta, own.text)
    except ValueError as wrong:
        raise CorruptRecord(revision, own.key, str(wrong)) from wrong
    if named is not None and named != tuple(parent.id for parent in segment.parents):
        raise WrongParents(revision)
    if named is not None and any(parent.absent for parent in segment.parents):
        raise WrongParents(revision)


class SegmentProof:
    """The proof of one segment: its entries in order, then `finish`.

    `reach`: the revision and its ancestors. `copies`: the ordinals of the revisions before this one that introduced a
    record.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        segment: Segment,
        reach: Reach,
        copies: Callable[[int, Key], Iterable[int]],
        cache: ReferenceCache,
    ) -> None:
        self._kinds = kinds
        self._segment = segment
        self._reach = reach
        self._copies = copies
        self._cache = cache
        self.own: Record | None = None
        """The record that is the revision itself, once it came."""
        self._own: set[tuple[int, Key]] = set()
        self._granted: list[tuple[int, frozenset[Key]]] = []
        """Kind and keys of what an ancestor's record refers to."""
        self._needed: list[tuple[Entry, frozenset[Key]]] = []

    @property
    def revision(self) -> RevisionId:
        """Whose proof it is."""
        return self._segment.revision

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
        needed = self.references(record)
        self._need(entry, needed, NOTHING if base is None else self.references(base))

    def add_repeat(self, entry: Entry, base_key: Key | None) -> bool:
        """Take an entry whose bytes were proved before; False, and not taken, where its text must be looked into."""
        needed = NOTHING
        if may_refer(self._kinds[entry.kind], entry.meta):
            cached = self._cache.get(entry.kind, entry.key)
            if cached is None:
                return False
            needed = cached
        granted = self._cache.get(entry.kind, base_key) if needed and base_key is not None else None
        self._need(entry, needed, granted or NOTHING)
        return True

    def _need(self, entry: Entry, needed: frozenset[Key], granted: frozenset[Key]) -> None:
        """Note what an entry refers to; `granted`: what its base does, which was proved with that."""
        self.claim(entry)
        if granted:
            base = (entry.kind, self._segment.base_of(entry))
            if base not in self._own:
                self._granted.append((entry.kind, granted))
            needed -= granted
        if needed:
            self._needed.append((entry, needed))

    def references(self, record: Record) -> frozenset[Key]:
        """What a record refers to.

        Raises:
            CorruptRecord: it cannot be read.
        """
        found = self._cache.get(record.kind, record.key)
        if found is None:
            try:
                found = frozenset(references(self._kinds[record.kind], record.key, record.meta, record.text))
            except ValueError as wrong:
                raise CorruptRecord(self.revision, record.key, str(wrong)) from wrong
            if not found:
                return NOTHING
            self._cache.put(record.kind, record.key, found)
        return found

    def finish(self) -> None:
        """Prove that everything referred to is here.

        Raises:
            MissingReference: it is not.
        """
        proved: set[tuple[int, Key]] = set()
        for entry, needed in self._needed:
            for key in needed:
                place = (entry.kind, key)
                if place in self._own or place in proved:
                    continue
                if not self._reaches(entry.kind, key):
                    raise MissingReference(self.revision, entry.key, key)
                proved.add(place)

    def _reaches(self, kind: int, key: Key) -> bool:
        if any(kind == granted and key in keys for granted, keys in self._granted):
            return True
        has = self._reach.has
        return any(has(ordinal) for ordinal in self._copies(kind, key))


class UnreachableBase(Exception):
    """A base that neither the revision nor an ancestor introduced; never crosses the wire."""

    def __init__(self, key: Key) -> None:
        super().__init__(key.hex())
        self.key = key
