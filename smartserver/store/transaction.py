"""`Transaction`: the changes that one request asks for, each checked. A commit writes the differences from the snapshot
into one record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from smartserver.errors import InvalidName, MissingParents, WrongMapKind, WrongTip, WrongVcs
from smartserver.records.announced import AnnouncedGraph, AnnouncedRevisions
from smartserver.records.model import GraphNode, Kind, RefValue, RevisionId, Tip
from smartserver.records.system import System, system_of
from smartserver.store.allowance import Allowance
from smartserver.store.graph import Graph
from smartserver.store.model import INCOMPLETE
from smartserver.store.record import Beginning, Change, Entry, PackEntry
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import DECLARED, MAP, REFS, SETTINGS, State, changed, encode_value, kind_of
from smartserver.store.table import check_key, check_name
from smartserver.store.view import RepositoryView, folders_of

MISSING_NAMED = 1024
"""The most missing parents that an error names, so that it fits into one small reply."""


class Transaction(RepositoryView):
    """The changes of one request. A method refuses a change by raising InvalidName, MissingRevision, WrongTip,
    WrongMapKind, WrongVcs or MissingParents. The verb that calls the method declares these errors."""

    is_partial = False
    """True if the server makes some of the requested changes and refuses others."""
    is_continued = False
    """True if the request is one of several requests of a copy, and not the last."""

    def announcing(self, announced: Sequence[GraphNode]) -> Transaction:
        """Return a new transaction on the same snapshot, without changes, to which these revisions are announced."""
        return Transaction(self.path, self.snapshot, announced, self._format, self.allowance)

    def create(
        self, vcs: str, kinds: Sequence[Kind], settings: Mapping[str, bytes], *, incomplete: bool = False
    ) -> bool:
        """Create the repository. Return False if it exists already, with the same system and kinds. `incomplete`: True
        if further requests of a copy follow."""
        self.is_continued = incomplete
        there = self.vcs if self.exists else vcs
        if there != vcs:
            raise WrongVcs(self.path, there, vcs)
        its = self.kinds if self.exists else system_of(vcs).kinds
        if its != tuple(kinds):
            raise WrongVcs(self.path, _described(vcs, its), _described(vcs, kinds))
        if self.exists:
            return False
        for name, value in settings.items():
            _check_setting(vcs, name, value)
        self.created = (vcs, its, dict(settings) | ({INCOMPLETE: b"yes"} if incomplete else {}))
        return True

    def set_ref(self, name: bytes, value: RefValue | None) -> None:
        """Change, add or remove a ref; the value None removes it. The caller must have checked that the change is
        allowed."""
        stored = self._stored_ref(name)
        check_name(name)
        if value:
            self._check_ref(name, value)
        if value is not None:
            value = tuple(sorted(value, key=lambda tip: tip.id))
        if self._folders is not None:
            change = (value is not None and value != ()) - (self.ref(name) is not None)
            for folder in folders_of(name) if change else ():
                self._folders[folder] += change
        if (value or None) == stored:
            self.changes.pop(name, None)
        else:
            self.changes[name] = value or None

    def _check_ref(self, name: bytes, value: RefValue) -> None:
        """Check that a ref may have this name and these tips. Raise InvalidName, MissingRevision or WrongTip."""
        system = system_of(self.vcs)
        problem = system.ref_problem(name)
        if problem:
            raise InvalidName(name, problem)
        wanted = system.tip_meta(name)
        for tip in value:
            self._ordinal(tip.id)
            found = None if wanted is None else self._meta_of(system, tip.id)
            if wanted is not None and found is not None and found != wanted:
                raise WrongTip(name, tip.id, system.type_name(found), system.type_name(wanted))

    @cached_property
    def tips(self) -> TipProof:
        """The object that proves the attributes of tips."""
        system = system_of(self.vcs)
        return TipProof(system, self.snapshot, self._graph, self.announced, self._fact, self.allowance)

    def prove_tips(self) -> None:
        """Replace the attributes of changed tips by their proved values, whatever the client sent. A ref whose proved
        value is the stored one is no longer a change; the request is then remembered (`remember`)."""
        claimed = {name: value for name, value in self.changes.items() if value is not None}
        stored = {name: value for name in claimed if (value := self._stored_ref(name)) is not None}
        for name, value in self.tips.values(claimed, stored).items() if claimed else ():
            self.changes[name] = value
            if value == stored.get(name):
                del self.changes[name]
                self.remember()

    def _meta_of(self, system: System, revision: RevisionId) -> bytes | None:
        """Return the meta of a revision's own record; None if the record has not arrived yet."""
        found = self._own_meta(revision)
        if found is None and system.own_kind is not None and self.is_stored(revision):
            (found,) = self._present().metas([(system.own_kind, revision)])
        return found

    def set_map(self, name: str, kind: str, key: bytes, value: bytes | None) -> None:
        """Change, add or remove an entry of a map; the value None removes it. The caller must have checked that the
        change is allowed."""
        declared = self.map_kind(name)
        known = system_of(self.vcs).maps.get(name)
        expected = known.kind if known is not None else declared or kind
        if expected != kind:
            raise WrongMapKind(name, expected, kind)
        if declared is None:
            check_name(name.encode())
        check_key(key)
        if value is not None:
            self.check_entry(name, key, value)
        of, belongs, _ = key.partition(b"\0")
        if belongs and value is not None:
            self._belonging.setdefault(of, set()).add((name, key))
        changes = self.entries.setdefault(name, {})
        if value == self._stored_map(name).get(key):
            changes.pop(key, None)
            return
        changes[key] = value
        if declared is None:
            self.declared[name] = kind

    def check_map(self, name: str, kind: str, *, of_refs: bool) -> None:
        """Check that the system has a map of this name and kind. `of_refs`: True if its entries must belong to refs."""
        system = system_of(self.vcs)
        known = system.maps.get(name)
        if known is None:
            maps = ", ".join(sorted(system.maps)) or "none"
            raise InvalidName(name.encode(), f"a repository of {system.name} has no such map; it has {maps}")
        if known.of_refs != of_refs:
            raise InvalidName(name.encode(), f"an entry of that map belongs to {'a' if known.of_refs else 'no'} ref")
        if known.kind != kind:
            raise WrongMapKind(name, known.kind, kind)

    def check_entry(self, name: str, key: bytes, value: bytes) -> None:
        """Check that the system accepts an entry of a map, and that the revision in it is stored or announced."""
        system = system_of(self.vcs)
        problem = system.entry_problem(name, key, value)
        if problem:
            raise InvalidName(key, problem)
        revision = system.entry_revision(name, key, value)
        if revision:
            self._ordinal(revision)

    def remove_entries(self, of: bytes) -> None:
        """Remove the entries that belong to the ref `of` from every map."""
        found = self._belonging.pop(of, set())
        if self.created is None:
            state = self._present().state
            found |= {(name, key) for name in state.maps for key in state.table(MAP + name).starting(of + b"\0")}
        for name, key in sorted(found):
            if self.entry(name, key) is not None:
                self.set_map(name, self.map_kind(name) or "", key, None)

    def unreached_new(self) -> frozenset[RevisionId]:
        """Return the new revisions that no ref and no entry of a map would reach, because their refs were refused. The
        result is empty if nothing was refused, or if refs of later requests may reach the revisions."""
        if not self.is_partial or self.is_continued:
            return frozenset()
        reached = {tip.id for value in self.refs().values() for tip in value}
        for name in self.maps():
            reached.update(self.named(name))
        found: set[RevisionId] = set()
        for node in reversed(self.announced):
            if node.revision in reached:
                reached.update(parent.id for parent in node.parents)
            elif not self.is_stored(node.revision):
                found.add(node.revision)
        return frozenset(found)

    def remember(self) -> None:
        """Have the request written to the log even if nothing changes, so that a repeat gets the same answer."""
        self.remembered = True

    def check_parents(self) -> None:
        """Check that each announced revision's parents are stored, announced before it, or marked absent."""
        if self._missing:
            raise MissingParents(self._missing[:MISSING_NAMED])

    def set_setting(self, name: str, value: bytes | None) -> None:
        """Change, add or remove a setting; the value None removes it. The system also adds the entries of maps that
        preserve the meaning of stored data."""
        if value is not None:
            _check_setting(self.vcs, name, value)
        before = dict(self.settings)
        if self.created is not None:
            self.created[2].pop(name, None)
            if value is not None:
                self.created[2][name] = value
        elif self._present().state.settings.get(name) == value:
            self.setting_changes.pop(name, None)
        else:
            self.setting_changes[name] = value
        tips = (tip.id for tips in self.refs().values() for tip in tips)
        for table, entries in system_of(self.vcs).settings_entries(before, self.settings, tips).items():
            for key, entry in entries.items():
                self.set_map(table, "opaque", key, entry)

    def delete(self) -> None:
        """Delete the repository. The request must make no other change."""
        self._present()
        self.deleted = True


def _check_setting(vcs: str, name: str, value: bytes) -> None:
    if name == INCOMPLETE:
        raise InvalidName(name.encode(), "only a copy that takes several requests has this setting")
    problem = system_of(vcs).setting_problem(name, value)
    if problem:
        raise InvalidName(value, f"the setting {name!r} cannot have this value: {problem}")


def _described(vcs: str, kinds: Sequence[Kind]) -> str:
    listed = ", ".join(f"{kind.name} ({kind.check}, {'may be a base' if kind.base else 'no base'})" for kind in kinds)
    return f"{vcs} with the kinds {listed}"


AHEAD = 256
"""The number of revisions whose headers are read at once from a remote store. Revisions that arrived together mostly
form one line of first parents."""


class TipProof:
    """Proves attributes of tips from records and the graph: a `records.content.TipReader` over a repository and the
    revisions of a request.

    The attributes of a tip (the target of a tag, the number of a revision) are shown to all users. So the server never
    stores the values that a client sent. The system computes them once the revisions of the request have arrived.
    """

    def __init__(
        self,
        system: System,
        snapshot: Snapshot | None,
        graph: Graph,
        announced: AnnouncedGraph | AnnouncedRevisions,
        fact: Callable[[RevisionId], bytes | None],
        allowance: Allowance,
    ) -> None:
        """`graph`: the graph of stored and announced revisions. `fact`: returns the `System.tip_fact` of an uploaded
        revision."""
        self._system = system
        self._snapshot = snapshot
        self._stored = 0 if snapshot is None else snapshot.graph.count
        self._graph = graph
        self._announced = announced
        self._fact = fact
        self._allowance = allowance
        self._first_parents: dict[int, int | None] = {}
        self._proved: dict[RevisionId, Tip] = {}
        self._trusts_stored = True

    def values(
        self, claimed: Mapping[bytes, RefValue], stored: Mapping[bytes, RefValue], *, trusts_stored: bool = True
    ) -> dict[bytes, RefValue]:
        """Return the values of refs with proved attributes. `claimed`: the values as the client sent them. `stored`:
        the stored values. `trusts_stored`: False if stored attributes must be proved too, as those of an earlier
        release."""
        self._trusts_stored = trusts_stored
        self._allowance.charge(len(claimed))
        # If the name of a ref says which type its tip has, the tip has no attributes.
        any_type = {name: value for name, value in claimed.items() if self._system.tip_meta(name) is None}
        known = {name: {tip.id: tip for tip in stored.get(name, ()) if trusts_stored} for name in any_type}
        tips = (tip.id for name, value in any_type.items() for tip in value if tip.id not in known[name])
        new = list(dict.fromkeys(tip for tip in tips if tip not in self._proved))
        if new:
            self._proved |= {tip.id: tip for tip in self._system.prove_tips(self, new)}
        return {
            name: tuple([self._proved.get(tip.id) or known[name][tip.id] for tip in value])
            if name in known
            else tuple([Tip(tip.id) for tip in value])
            for name, value in claimed.items()
        }

    def proved(self) -> Iterator[Tip]:
        """Yield the tips of stored refs, if their attributes are trusted."""
        if self._snapshot is not None and self._trusts_stored:
            for value in self._snapshot.state.refs().values():
                self._allowance.charge(1)
                yield from value

    def ordinal(self, revision: RevisionId) -> int | None:
        """Return the ordinal of a revision; None if it is neither stored nor announced."""
        return self._graph.ordinal(revision)

    def first_parent(self, ordinal: int) -> int | None:
        """Return the ordinal of a revision's first parent; None if it has no parent, or its first parent is missing."""
        self._allowance.charge(1)
        if ordinal >= self._stored:
            place = self._announced.find(self._graph.revision(ordinal))
            assert place is not None, "it is stored or announced"
            parents = self._announced[place].parents
            return self._graph.ordinal(parents[0].id) if parents and not parents[0].absent else None
        assert self._snapshot is not None, "something is stored"
        if not self._snapshot.is_remote:
            return self._snapshot.first_parent(ordinal)
        if ordinal not in self._first_parents:
            self._first_parents |= self._snapshot.first_parents(range(max(0, ordinal + 1 - AHEAD), ordinal + 1))
        return self._first_parents[ordinal]

    def facts(self, revisions: Sequence[RevisionId]) -> Sequence[bytes]:
        """Return the `System.tip_fact` of each revision. The facts of uploaded revisions are known; for other
        revisions, records are read."""
        self._allowance.charge(len(revisions))
        found = {revision: self._fact(revision) for revision in revisions}
        snapshot, kind = self._snapshot, self._system.own_kind
        if snapshot is not None and kind is not None:
            unknown = (revision for revision, fact in found.items() if fact is None)
            read = [revision for revision in unknown if snapshot.ordinal(revision) is not None]
            if self._system.label is not None:  # Only labels have facts, and a header is smaller than a record.
                metas = snapshot.metas([(kind, revision) for revision in read])
                read = [revision for revision, meta in zip(read, metas, strict=True) if meta == self._system.label]
            places = {revision: place for revision in read if (place := snapshot.first(kind, revision)) is not None}
            if snapshot.is_remote:
                snapshot.fetch(places.values())
            for revision, place in places.items():
                self._allowance.decode(place.chain_kib << 10)
                record = snapshot.record(place)
                found[revision] = self._system.tip_fact(record.meta, record.text)
        return [found[revision] or b"" for revision in revisions]


def entry_of(
    transaction: Transaction,
    state: State,
    request: bytes,
    user: str,
    outcomes: bytes,
    pack: PackEntry | None,
    incarnation: bytes,
    options: tuple[str, ...] = (),
) -> Entry:
    """Return the log entry of a transaction on a state. `incarnation`: the incarnation of the repository if the
    transaction creates it. `options`: the push options."""
    begins = None
    if transaction.created is not None:
        begins = Beginning(incarnation, *transaction.created[:2])
    changes = () if transaction.deleted else tuple(_changes(transaction, state))
    return Entry(request, user, outcomes, changes, pack, begins, transaction.deleted, options)


def _changes(transaction: Transaction, state: State) -> Iterator[Change]:
    """Yield the changes in the order in which they must be applied: a new map comes before its entries, and the removal
    of a map after the removal of its entries."""
    for word, kind in transaction.declared.items():
        if kind is not None:
            check_name(word.encode())
            yield from changed(DECLARED, word.encode(), kind_of(state, word), kind.encode())
    for name, value in transaction.changes.items():
        check_name(name)
        new = None if value is None else encode_value(value)
        yield from changed(REFS, name, state.table(REFS).get(name), new)
    for word, entries in transaction.entries.items():
        for key, entry in entries.items():
            check_key(key)
            yield from changed(MAP + word, key, state.table(MAP + word).get(key), entry)
    for word, kind in transaction.declared.items():
        if kind is None:
            yield from changed(DECLARED, word.encode(), kind_of(state, word), None)
    settings = transaction.setting_changes if transaction.created is None else transaction.created[2]
    for setting, content in settings.items():
        yield from changed(SETTINGS, setting.encode(), state.settings.get(setting), content)
