"""The proof of a new revision: its records refer only to records of the same revision or of its ancestors."""

# Theory of operation
# ===================
#
# A server must never store a revision that cannot be cloned. So before a segment is taken, every base and reference of
# its records must come with it or have been introduced by an ancestor, and be of the right type. The cost of walking
# the whole history for each push would grow with the history. The cost of this proof grows with the change.
#
# The parts:
#
# 1) `check_own_record`: the segment's parents are those that the revision's own record names.
# 2) `SegmentProof.add`, for each record: the keys that it refers to and its base does not are *needed*.
# 3) `SegmentProof.finish`: each needed key is in this segment, or granted by a base, or found in an ancestor.
#
# The argument: a record's base was stored with a proof of its own. Each record that the base refers to was introduced
# by the base's revision or an ancestor, which are ancestors of ours. So the base *grants* these keys, and only the
# difference needs a look at the graph. If one of 10,000 entries of a tree changed, one key is needed.
#
# Rules:
#
# 1) A base from this segment grants nothing to other records: its own references are not proved yet.
# 2) A grant is of a kind, a type (`meta`) and a key. A base of another type grants nothing: a text that merely looks
#    like a list of references would otherwise vouch for them.
# 3) A base itself must be reachable (`base`), not just present: a revision that is no ancestor may not be cloned with
#    it.
# 4) `ReferenceCache` has only kinds whose key proves the text.
#
# The hard case is a key that an ancestor introduced, while no record read so far says its type. Such keys are
# collected in `unknown`, and their headers are read together at the end, because each would be a read of a pack.
#
# The native prover (`native/src/prover.rs`) does the same for valid, common segments. All other segments come here, so
# every error is worded here.
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
"""The limit of a `ReferenceCache` in referenced keys, which take some 20 MB. Nearly every base is a recent record. With
120,000, a first push of 12,502 commits takes the server 8 % more CPU time."""

Group = tuple[int, bytes | None, frozenset[Key]]
"""References of one sort: the kind of the records, the meta that they must have (None means any), and their keys."""

References = tuple[Group, ...]
"""The references of a record. A key that is in two groups of one kind has a wrong type in one of them."""

NOTHING: Final[References] = ()


class ReferenceCache:
    """A cache of the references of records whose key proves their text. The least recently used are evicted first."""

    def __init__(self, limit: int = REFERENCES_KEPT) -> None:
        self._found = Cache[tuple[int, Key, bytes], References](limit, _cost)

    def get(self, record: Record) -> References | None:
        """Return the references of a record; None if they are not cached. The meta is compared, too, because the key
        need not cover it."""
        return self._found.get((record.kind, record.key, record.meta))

    def put(self, record: Record, found: References) -> None:
        """Cache the references of a record."""
        self._found.put((record.kind, record.key, record.meta), found)


def _cost(references: References) -> int:
    """Return the cost of a record's references in the cache: one more than the number of their keys."""
    return 1 + sum(len(keys) for _, _, keys in references)


def check_own_record(system: System, segment: Segment, own: Record | None) -> None:
    """Check that the parents of a segment are those in the revision's own record. `own`: the own record; None if the
    segment lacks it."""
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
    """The proof of one segment: call `base` and `add` for its entries in order, then `finish`.

    `reaches_any`: tells whether the revision is or descends from any of the given ordinals. `copies`: returns the
    ordinals of the earlier revisions that introduced a record. `metas`: returns the metas of records that ancestors
    introduced."""

    _system: System
    _segment: Segment
    _reaches_any: Callable[[Iterable[int]], bool]
    _copies: Callable[[int, Key], Iterable[int]]
    _metas: Callable[[Sequence[RecordName]], Sequence[bytes]]
    _cache: ReferenceCache
    own: Record | None = None
    """The revision's own record, once it was read."""
    _own: dict[RecordName, bytes] = field(default_factory=dict)
    """The metas of the revision's records so far, by kind and key."""
    _bases: dict[RecordName, bytes] = field(default_factory=dict)
    """The metas of the bases of these records, by kind and key."""
    _granted: list[Group] = field(default_factory=list)
    """The references of bases from ancestors, which need no further proof."""
    _needed: list[tuple[Entry, Group]] = field(default_factory=list)

    @property
    def revision(self) -> RevisionId:
        """The id of the revision that is proved."""
        return self._segment.revision

    def base(self, entry: Entry) -> Key | None:
        """Return the key of an entry's base; None if it has no base.

        Raises:
            UnreachableBase: neither an earlier entry of this revision nor an ancestor introduced the base.
        """
        if entry.base == BaseTag.NONE:
            return None
        key = self._segment.base_of(entry)
        if not self.introduced(entry.kind, key):
            raise UnreachableBase(key)
        return key

    def introduced(self, kind: int, key: Key) -> bool:
        """Tell whether an ancestor, or this revision in its entries so far, introduced a record."""
        return (kind, key) in self._own or self._reaches(kind, key)

    def claim(self, entry: Entry) -> None:
        """Note that this revision introduced the record of an entry, without proving the record."""
        self._own[entry.kind, entry.key] = entry.meta

    def add(self, entry: Entry, record: Record, base: Record | None) -> None:
        """Add an entry whose record was proved to match its key or check. `base`: the base of the record, if any."""
        if base is not None:
            self._bases[base.kind, base.key] = base.meta
        if base is None or entry.kind not in self._system.content_keys:
            # If a key does not prove its text, references are not cached: reading the base's again would cost more.
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
        """Note the references of an entry. `granted`: the references of its base, which were proved with the base."""
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
            CorruptRecord: the record cannot be parsed.
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
        """Prove that this revision or an ancestor introduced each needed record, with the required type."""
        own, bases = self._own, self._bases
        proved: set[tuple[int, bytes | None, Key]] = set()
        # An ancestor introduced these records, but their types are not known yet.
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
        """Tell whether a base from an ancestor refers to a key as a record of this type."""
        for granted_kind, granted_meta, keys in self._granted:
            if granted_kind == kind and granted_meta == meta and key in keys:
                return True
        return False

    def _reaches(self, kind: int, key: Key) -> bool:
        # A loop, not `any`: it is called three times for each record.
        for granted, _, keys in self._granted:
            if kind == granted and key in keys:
                return True
        return self._reaches_any(self._copies(kind, key))


def _frozen(groups: ReferenceGroups) -> References:
    return tuple([(kind, meta, frozenset(keys)) for kind, meta, keys in groups if keys])


class UnreachableBase(Exception):
    """An entry has a base that neither the revision nor an ancestor introduced. This error never reaches a client."""

    def __init__(self, key: Key) -> None:
        super().__init__(shown(key))
        self.key = key


class Judge:
    """Judges the new records of one push: refuses records with faults that the policy does not allow, and counts other
    faults for a warning.

    Only new records are judged, so a push onto an old history is not refused for that history. A record with a role (a
    file that the system itself reads) is decoded a second time when its segment is complete. Its type and size are
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
        """`measure`: returns the meta and text length of a record, without decoding it; None if it is missing. `read`:
        returns a context manager that yields the record."""
        self._checker = system_of(vcs).faults
        self._policy = policy
        self._judges = policy.level is not Level.OFF and bool(self._checker.severities)
        self._is_stored = is_stored
        self._measure = measure
        self._read = read
        self._charge = charge
        self._roles: dict[RecordRole, Key] = {}
        """The roles that records of the current segment assign to other records, each with the key of the first record
        that assigns it."""
        self._judged: set[RecordRole] = set()
        self.warnings: dict[str, tuple[int, Key]] = {}
        """The faults that were not refused, by id: the number of records with the fault, and the key of the first."""

    def weigh_record(self, revision: RevisionId, record: Record, base: Record | None) -> None:
        """Judge a record by its own content, and note the roles that it assigns to other records."""
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
        """Judge the records to which records of the segment, now complete, assign a role."""
        for role, key in self._roles.items():
            self._judged.add(role)
            if self._is_stored(role.kind, key):
                continue
            self._charge(1)
            size = self._measure(role.kind, role.key)
            if size is None:  # `SegmentProof` refuses a record that must be here and is missing.
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
