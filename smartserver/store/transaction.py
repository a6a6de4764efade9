"""`Transaction`: the changes that one request asks for, each checked. The repository writes down what differs, in one
record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from smartserver.errors import (
    InvalidName,
    MissingParents,
    WrongMapKind,
    WrongTip,
    WrongVcs,
)
from smartserver.records.model import GraphNode, Kind, RefValue, RevisionId
from smartserver.records.system import System, system_of
from smartserver.store.model import INCOMPLETE
from smartserver.store.state import MAP
from smartserver.store.table import check_key, check_name
from smartserver.store.tips import TipProof
from smartserver.store.view import RepositoryView, folders_of

MISSING_NAMED = 1024
"""Missing parents an error names: it travels in one small reply."""


class Transaction(RepositoryView):
    """The changes of one request."""

    is_partial = False
    """True if some of the changes that the request asks for are refused, and the others made."""

    def announcing(self, announced: Sequence[GraphNode]) -> Transaction:
        """Another view of the same, which nothing was changed in yet, with these revisions announced."""
        return Transaction(self.path, self.snapshot, announced, self._format, self.allowance)

    def create(
        self, vcs: str, kinds: Sequence[Kind], settings: Mapping[str, bytes], *, incomplete: bool = False
    ) -> bool:
        """Make the repository with this request; False where one of the same `vcs` exists. `incomplete`: as
        `is_incomplete` says from then on.

        Raises:
            Unsupported: a kind's check is not one this release knows.
            WrongVcs: one of another `vcs` exists.
            InvalidName: a setting names a ref that cannot be one, or is `INCOMPLETE`.
        """
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
        """Change, make or (None) remove a ref; the rule was checked by the caller.

        Raises:
            InvalidName: not 1 to 1,024 bytes, NUL in it, or not a name the repository's VCS allows.
            MissingRevision: a tip is neither stored nor announced.
            WrongTip: a tip is of a type that this ref cannot point at.
        """
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
        """Check that a ref may have this name and these tips."""
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
        """What proves the attributes of tips."""
        system = system_of(self.vcs)
        return TipProof(system, self.snapshot, self._graph, self.announced, self._fact, self.allowance)

    def prove_tips(self) -> None:
        """Give the tips of changed refs the attributes that are proved, whatever the client said of them. Where nothing
        else was to change, the ref is as it was, and the log says that this was answered."""
        claimed = {name: value for name, value in self.changes.items() if value is not None}
        stored = {name: value for name in claimed if (value := self._stored_ref(name)) is not None}
        for name, value in self.tips.values(claimed, stored).items() if claimed else ():
            self.changes[name] = value
            if value == stored.get(name):
                del self.changes[name]
                self.remember()

    def _meta_of(self, system: System, revision: RevisionId) -> bytes | None:
        """The meta of a revision's own record; None where that is still on its way."""
        found = self._own_meta(revision)
        if found is None and system.own_kind is not None and self.is_stored(revision):
            (found,) = self._present().metas([(system.own_kind, revision)])
        return found

    def set_map(self, name: str, kind: str, key: bytes, value: bytes | None) -> None:
        """Change, make or (None) remove an entry of a map; the caller decided that it may be.

        Raises:
            WrongMapKind: the map is of another kind.
            InvalidName: the map's name or the key cannot be one.
            MissingRevision: as `check_entry`.
        """
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
        """Check that the system has a map of that name and kind. `of_refs`: whether entries are to belong to a ref.

        Raises:
            InvalidName: it has none of that name, or its entries belong otherwise.
            WrongMapKind: it is of another kind.
        """
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
        """Check what the system says of an entry of a map.

        Raises:
            InvalidName: it cannot have this key or value.
            MissingRevision: the revision that it is about is neither stored nor announced.
        """
        system = system_of(self.vcs)
        problem = system.entry_problem(name, key, value)
        if problem:
            raise InvalidName(key, problem)
        revision = system.entry_revision(name, key, value)
        if revision:
            self._ordinal(revision)

    def remove_entries(self, of: bytes) -> None:
        """Remove what belongs to a ref from every map."""
        found = self._belonging.pop(of, set())
        if self.created is None:
            state = self._present().state
            found |= {(name, key) for name in state.maps for key in state.table(MAP + name).starting(of + b"\0")}
        for name, key in sorted(found):
            if self.entry(name, key) is not None:
                self.set_map(name, self.map_kind(name) or "", key, None)

    def unreached(self) -> frozenset[RevisionId]:
        """The new revisions that no ref and no entry of a map would reach: those of refs that were refused. None where
        refs come with later requests, or nothing was refused."""
        if not self.is_partial or INCOMPLETE in self.settings:
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
        """Have the log say that this request was answered, even if nothing changes: a repeat of it, carried out after
        somebody else's change, would undo that."""
        self.remembered = True

    def check_parents(self) -> None:
        """Check that each announced revision's parents are stored, announced before it, or marked absent.

        Raises:
            MissingParents: some are not.
        """
        if self._missing:
            raise MissingParents(self._missing[:MISSING_NAMED])

    def set_setting(self, name: str, value: bytes | None) -> None:
        """Change, make or (None) remove a setting. The system adds entries of maps that keep the meaning of what is
        stored.

        Raises:
            InvalidName: it names a ref that cannot be one, or is `INCOMPLETE`, which can only be removed.
        """
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
        """Delete the repository; nothing else is asked for in the request."""
        self._present()
        self.deleted = True


def _check_setting(vcs: str, name: str, value: bytes) -> None:
    if name == INCOMPLETE:
        raise InvalidName(name.encode(), "only a copy that takes several requests has this setting")
    problem = system_of(vcs).setting_problem(name, value)
    if problem:
        raise InvalidName(value, f"{name} cannot name it: {problem}")


def _described(vcs: str, kinds: Sequence[Kind]) -> str:
    listed = ", ".join(f"{kind.name} ({kind.check}, {'may be a base' if kind.base else 'no base'})" for kind in kinds)
    return f"{vcs} with the kinds {listed}"
