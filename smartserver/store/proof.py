"""The proof of a new revision: its records rest on and refer to nothing but what comes with it or before it."""

# Theory of operation
# ===================
#
# A server must never store a revision that cannot be cloned. So before a segment is taken, everything its records
# rest on and refer to must come with it or have been introduced by an ancestor, and be of the right type. To walk the
# whole history for each push would cost what the history holds. The proof here costs what the revision changed.
#
# The parts:
#
# 1) `check_own_record`: the segment's parents are those that the revision's own record names.
# 2) `SegmentProof.add`, for each record: what it refers to, minus what its base refers to, is *needed*.
# 3) `SegmentProof.finish`: each needed key is in this segment, or granted by a base, or found in an ancestor.
#
# The argument: a record's base was stored with a proof of its own. Whatever the base refers to was introduced by an
# ancestor of the base's revision, which is an ancestor of ours. So the base *grants* these keys, and only the
# difference needs a look at the graph. Of a tree with 10,000 entries of which one changed, one key is needed.
#
# Rules:
#
# 1) A base from this segment grants nothing to other records: what it refers to is itself still to be proved.
# 2) A grant is of a kind, a type (`meta`) and a key. A base of another type grants nothing: a text that merely looks
#    like a list of references would otherwise vouch for them.
# 3) A base itself must be reachable (`base`), not just present: a revision that is no ancestor may not be cloned with
#    it.
# 4) `ReferenceCache` is keyed by what the key proves. A kind whose key does not prove the text is not cached.
#
# The hard case is a key that an ancestor introduced, but no record that was looked at says what type it is. These are
# collected in `unknown` and their headers read in one go at the end, because each would be a read of a pack.
#
# The native prover (`native/src/prover.rs`) does the same for what is in order and common. Whatever it does not take
# comes here, so every error is worded here.
#

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from smartserver.errors import CorruptRecord, MissingReference, WrongParents, shown
from smartserver.records.cache import Cache
from smartserver.records.charge import Charge, free
from smartserver.records.faults import Level, Policy, RecordFault, RecordRole
from smartserver.records.model import BaseTag, Entry, Key, Record, RecordName, RevisionId, Segment
from smartserver.records.system import References as ReferenceGroups
from smartserver.records.system import System, system_of

REFERENCES_KEPT = 200_000
"""Keys kept of what recent records refer to, some 20 MB: nearly every base is a record seen a moment ago. With
120,000 a first push of 12,502 commits takes the server 8 % more CPU."""

Group = tuple[int, bytes | None, frozenset[Key]]
"""The kind a record refers to, the meta those records must have (None: any), and the keys."""

References = tuple[Group, ...]
"""The keys a record refers to; a key is in one group of a kind, or its type is wrong in one of them."""

NOTHING: Final[References] = ()


class ReferenceCache:
    """The references of records, the least recently used dropped first; only if the key is proof of the text."""

    def __init__(self, limit: int = REFERENCES_KEPT) -> None:
        self._found = Cache[tuple[int, Key, bytes], References](limit, _cost)

    def get(self, record: Record) -> References | None:
        """Return the references of a record, if they are kept. Its key need not prove its meta."""
        return self._found.get((record.kind, record.key, record.meta))

    def put(self, record: Record, found: References) -> None:
        """Keep what a record refers to."""
        self._found.put((record.kind, record.key, record.meta), found)


def _cost(references: References) -> int:
    """Keys that an entry of the cache has, and one."""
    return 1 + sum(len(keys) for _, _, keys in references)


def check_own_record(system: System, segment: Segment, own: Record | None) -> None:
    """Check that a segment states the parents its revision's own record names; `own`: that record, where it came."""
    if system.own_kind is None:
        return
    revision = segment.revision
    if own is None:
        raise CorruptRecord(revision, revision, "the record that is the revision itself is not in its segment")
    if system.of_revision:
        for entry in segment.entries:
            if entry.kind in system.of_revision and entry.key != revision:
                raise CorruptRecord(revision, entry.key, "it belongs to another revision")
    try:
        named = system.own_parents(own.key, own.meta, own.text)
    except ValueError as error:
        raise CorruptRecord(revision, own.key, str(error)) from error
    if named != tuple(parent.id for parent in segment.parents):
        raise WrongParents(revision)
    if not system.ghosts and any(parent.absent for parent in segment.parents):
        raise WrongParents(revision)


@dataclass(eq=False, slots=True)
class SegmentProof:
    """The proof of one segment: its entries in order, then `finish`. `reaches_any`: tells whether the revision is or
    descends from any of some, by ordinals. `copies`: the ordinals of the revisions before this one that introduced a
    record. `metas`: the metas of records that an ancestor introduced, asked for together."""

    _system: System
    _segment: Segment
    _reaches_any: Callable[[Iterable[int]], bool]
    _copies: Callable[[int, Key], Iterable[int]]
    _metas: Callable[[Sequence[RecordName]], Sequence[bytes]]
    _cache: ReferenceCache
    own: Record | None = None
    """The record that is the revision itself, once it came."""
    _own: dict[RecordName, bytes] = field(default_factory=dict)
    """The records of this revision so far, with their metas."""
    _bases: dict[RecordName, bytes] = field(default_factory=dict)
    """Records that some of them are based on, with their metas."""
    _granted: list[Group] = field(default_factory=list)
    """The references of records of ancestors."""
    _needed: list[tuple[Entry, Group]] = field(default_factory=list)

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
        """Tell whether this revision, in the entries so far, or an ancestor introduced that record."""
        return (kind, key) in self._own or self._reaches(kind, key)

    def claim(self, entry: Entry) -> None:
        """Take an entry as introduced without looking at what it is."""
        self._own[entry.kind, entry.key] = entry.meta

    def add(self, entry: Entry, record: Record, base: Record | None) -> None:
        """Take an entry that was found to be what its key says; `base`: the record it is based on, if any."""
        if base is not None:
            self._bases[base.kind, base.key] = base.meta
        if base is None or entry.kind not in self._system.content_keys:
            # What a base refers to is remembered where its key is proof; to read it again costs more than to ask.
            self._need(entry, self.references(record), NOTHING)
            return
        try:
            changes = self._system.changes(record, base)
        except ValueError as error:
            raise CorruptRecord(self.revision, record.key, str(error)) from error
        if changes is None:
            self._need(entry, self.references(record), self.references(base))
            return
        now, before = (_frozen(groups) for groups in changes)
        self._need(entry, now, before)

    def _need(self, entry: Entry, needed: References, granted: References) -> None:
        """Note what an entry refers to; `granted`: what its base does, which was proved with that."""
        self.claim(entry)
        if granted and (entry.kind, self._segment.base_of(entry)) not in self._own:
            self._granted += granted
        for kind, meta, keys in needed:
            for granted_kind, granted_meta, known in granted:
                if granted_kind == kind and granted_meta == meta:
                    keys -= known
            if keys:
                self._needed.append((entry, (kind, meta, keys)))

    def references(self, record: Record) -> References:
        """Return the references of a record.

        Raises:
            CorruptRecord: it cannot be read.
        """
        found = self._cache.get(record)
        if found is None:
            try:
                groups = self._system.references(record.kind, record.key, record.meta, record.text)
            except ValueError as error:
                raise CorruptRecord(self.revision, record.key, str(error)) from error
            found = _frozen(groups)
            if record.kind in self._system.content_keys and self._system.may_refer(record.kind, record.meta):
                self._cache.put(record, found)
        return found

    def finish(self) -> None:
        """Prove that everything referred to is here and of the type it must have."""
        own, bases = self._own, self._bases
        proved: set[tuple[int, bytes | None, Key]] = set()
        # An ancestor introduced these, but nothing of an ancestor that was looked at says what they are.
        unknown: dict[RecordName, list[tuple[Entry, bytes]]] = {}
        for entry, (kind, meta, keys) in self._needed:
            for key in keys:
                name = (kind, key)
                found = own.get(name)
                if found is None:
                    if (kind, meta, key) in proved:
                        continue
                    proved.add((kind, meta, key))
                    if self._is_granted(kind, meta, key):
                        continue
                    found = bases.get(name)
                    if found is None:
                        if not self._reaches(kind, key):
                            raise MissingReference(self.revision, entry.key, key)
                        if meta is not None:
                            unknown.setdefault(name, []).append((entry, meta))
                        continue
                if meta is not None and found != meta:
                    raise self._wrong_type(entry, key, found, meta)
        if unknown:
            for (name, wanted), found in zip(unknown.items(), self._metas(list(unknown)), strict=True):
                for entry, meta in wanted:
                    if found != meta:
                        raise self._wrong_type(entry, name[1], found, meta)

    def _wrong_type(self, entry: Entry, key: Key, found: bytes, wanted: bytes) -> CorruptRecord:
        name = self._system.type_name
        why = f"it refers to {shown(key)} as {name(wanted)}, which is {name(found)}"
        return CorruptRecord(self.revision, entry.key, why)

    def _is_granted(self, kind: int, meta: bytes | None, key: Key) -> bool:
        """Tell whether a record of an ancestor refers to that one as a record of that type."""
        for granted_kind, granted_meta, keys in self._granted:
            if granted_kind == kind and granted_meta == meta and key in keys:
                return True
        return False

    def _reaches(self, kind: int, key: Key) -> bool:
        # A loop, not `any`: asked three times a record.
        for granted, _, keys in self._granted:
            if kind == granted and key in keys:
                return True
        return self._reaches_any(self._copies(kind, key))


def _frozen(groups: ReferenceGroups) -> References:
    return tuple([(kind, meta, frozenset(keys)) for kind, meta, keys in groups if keys])


class UnreachableBase(Exception):
    """A base that neither the revision nor an ancestor introduced; never crosses the wire."""

    def __init__(self, key: Key) -> None:
        super().__init__(shown(key))
        self.key = key


class Judge:
    """Judges the new records of one push: those with a fault that harms clients are refused, lesser faults are counted
    for a warning.

    Only what is new is judged, so a push onto an old history is not refused for that history. A record whose role makes
    it a file that the system itself reads is decoded a second time, when its segment is complete. Its type and size are
    judged before that.
    """

    def __init__(
        self,
        vcs: str,
        policy: Policy,
        is_stored: Callable[[int, Key], bool],
        measure: Callable[[int, Key], tuple[bytes, int] | None],
        read: Callable[[int, Key], AbstractContextManager[Record]],
        charge: Charge = free,
    ) -> None:
        """`measure` gives meta and text length of a record, without decoding; `read` gives it, within a context."""
        self._checker = system_of(vcs).faults
        self._policy = policy
        self._judges = policy.level is not Level.OFF and bool(self._checker.severities)
        self._is_stored = is_stored
        self._measure = measure
        self._read = read
        self._charge = charge
        self._roles: dict[RecordRole, Key] = {}
        """The roles that records of the segment under check give to others, and the first record that does."""
        self._judged: set[RecordRole] = set()
        self.warnings: dict[str, tuple[int, Key]] = {}
        """By the id of a fault that is no reason to refuse: how many records have it, and the first of them."""

    def look(self, revision: RevisionId, record: Record, base: Record | None) -> None:
        """Judge a record by itself."""
        if not self._judges:
            return
        kind, key, meta, text = record
        below = None if base is None or base.meta != meta else base.text
        faults, roles = self._checker.look(kind, meta, text, below)
        if faults and not self._is_stored(kind, key):
            self._weigh(revision, key, faults)
        for role in roles:
            if role not in self._judged:
                self._roles.setdefault(role, key)

    def finish(self, revision: RevisionId) -> None:
        """Judge the records that those of a whole segment give a meaning."""
        for role, key in self._roles.items():
            self._judged.add(role)
            if self._is_stored(role.kind, key):
                continue
            self._charge(1)
            size = self._measure(role.kind, role.key)
            if size is None:  # `SegmentProof` refuses what must be here.
                continue
            faults = self._checker.size_faults(role, *size)
            if not faults:
                with self._read(role.kind, role.key) as record:
                    faults = self._checker.role_faults(role, record, self._charge)
            self._weigh(revision, role.key, faults)
        self._roles.clear()

    def _weigh(self, revision: RevisionId, key: Key, faults: Sequence[RecordFault]) -> None:
        for fault in faults:
            if fault.id in self._policy.ignored:
                continue
            if self._policy.refuses(self._checker.severities[fault.id]):
                raise CorruptRecord(revision, key, f"{fault.id}: {fault.why}")
            count, first = self.warnings.get(fault.id, (0, key))
            self.warnings[fault.id] = count + 1, first
