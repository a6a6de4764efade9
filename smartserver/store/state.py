"""A repository after a record, as a value. `after` gives the state after the next record.

It says what a snapshot opens, what requests are judged on, and what a client is told of changes. `checkpoint` writes
one to a file.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, TypeGuard

import msgspec

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.model import Kind, RefValue, Tip, encode_ref
from smartserver.records.system import system_of
from smartserver.store.history import History
from smartserver.store.model import INCOMPLETE, Changes, KnownVersion
from smartserver.store.record import (
    NOTHING,
    Beginning,
    Bytes16,
    Change,
    Entry,
    Join,
    Natural,
    PackEntry,
    Record,
    encode_record,
    hash_of,
)
from smartserver.store.table import OVERHEAD, DecodedTable, Table

REFS = "refs"
MAP = "map/"
"""Names of tables; a map's is `map/` and its own."""
SETTINGS = "settings"
DECLARED = "maps"
"""The tables that records name for changes of settings and of the kinds of maps."""

MAX_STATE = 60 << 20
"""Bytes of all refs, entries of maps and settings, at most: a reply of 64 MiB carries them to a client that knows none.
500,000 refs of 120 bytes are 57.2 MiB; 4 MiB are left for what else a reply says. An entry counts as `LEAST_ENTRY` at
least, so that there are 2**19 at most: a client takes no more, as a short one costs it as much memory as a long one."""

MAX_MAPS = 64
"""Maps of a repository; a client takes no more."""
_REF = msgspec.msgpack.Decoder(Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1)])
_encode = msgspec.msgpack.Encoder().encode


class Misfit(Exception):
    """A record does not follow the state `before`: it belongs to another line of changes."""

    def __init__(self, why: str, before: State) -> None:
        super().__init__(why)
        self.before = before


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """A file in `packs` that record `number` stopped naming, at `time` (milliseconds since the epoch)."""

    time: int
    number: Natural


def encode_value(value: RefValue) -> bytes:
    """A ref's value as a table holds it; its tips are sorted here."""
    if not value:
        raise ValueError("a ref without tips")
    return _encode(encode_ref(sorted(value, key=attrgetter("id"))))


def decode_value(value: bytes) -> RefValue:
    """The other way round."""
    try:
        found: RefValue = _REF.decode(value)
    except msgspec.DecodeError as error:
        raise CorruptFile("log", 0, f"the value of a ref: {error}") from error
    return found


@dataclass(eq=False)
class State:
    """A repository after record `version`; before its first creation and after a deletion it does not exist. It never
    changes: only `_Draft` does, on a copy.

    `hash`: of that record. `tables`: by their names, `REFS` and those of maps. `dropped`: by the names of packs.
    """

    version: int
    hash: bytes
    features: tuple[str, ...] = ()
    incarnation: bytes = b""
    vcs: str = ""
    kinds: tuple[Kind, ...] = ()
    packs: tuple[PackEntry, ...] = ()
    settings: dict[str, bytes] = field(default_factory=dict)
    settings_version: int = 0
    tables: dict[str, Table] = field(default_factory=dict)
    dropped: dict[bytes, Dropped] = field(default_factory=dict)
    history: History = field(default_factory=History)

    @property
    def exists(self) -> bool:
        """True if there is a repository; a deleted one is none."""
        return bool(self.vcs)

    @property
    def is_incomplete(self) -> bool:
        """True if a copy into the repository takes more requests than have come."""
        return INCOMPLETE in self.settings

    @property
    def mark(self) -> int:
        """The mark of this version."""
        return self.history.mark(self.version)

    # -- what it has

    def refs(self) -> Mapping[bytes, RefValue]:
        """All refs, in name order."""
        return DecodedTable(self.table(REFS), decode_value)

    def ref(self, name: bytes) -> RefValue | None:
        """One ref, or None."""
        value = self.table(REFS).get(name)
        return None if value is None else decode_value(value)

    @property
    def maps(self) -> Mapping[str, Mapping[bytes, bytes]]:
        """The maps by name."""
        return {name.removeprefix(MAP): table for name, table in self.tables.items() if name.startswith(MAP)}

    def map(self, word: str) -> Mapping[bytes, bytes]:
        """One map; empty where none of that name was declared."""
        return self.table(MAP + word)

    def map_kind(self, word: str) -> str | None:
        """The declared kind of a map, or None."""
        found = self.tables.get(MAP + word)
        return None if found is None else found.kind

    def table(self, name: str) -> Table:
        """A table by its name; an empty one where there is none."""
        return self.tables.get(name) or Table("opaque")

    # -- what changed

    def changes_since(self, known: KnownVersion | None) -> Changes:
        """The changes since the version a client knows; everything if that cannot be told."""
        untold = system_of(self.vcs).untold
        if not self.continues(known):
            told = {word: entries for word, entries in self.maps.items() if word not in untold}
            settings = dict(self.settings)
            whole = self.table(REFS)
            return Changes(self.incarnation, self.version, None, whole, told, self.vcs, settings, self.mark)
        refs: dict[bytes, bytes | None] = {}
        maps: dict[str, dict[bytes, bytes | None]] = {}
        for change in self._changes(known.version):
            word = change.table.removeprefix(MAP)
            if change.table == REFS:
                refs[change.key] = change.new
            elif change.table.startswith(MAP) and word not in untold:
                maps.setdefault(word, {})[change.key] = change.new
        told_before = self.settings_version <= known.version
        vcs, settings = ("", {}) if told_before else (self.vcs, dict(self.settings))
        return Changes(self.incarnation, self.version, known.version, refs, maps, vcs, settings, self.mark)

    def changed_keys(self, word: str, known: KnownVersion) -> frozenset[bytes] | None:
        """The keys of a map's entries that changed since a version; None where that cannot be told."""
        if not self.continues(known):
            return None
        return frozenset(change.key for change in self._changes(known.version) if change.table == MAP + word)

    def _changes(self, version: int) -> Iterator[Change]:
        return (change for entry in self.history.after(version) for change in entry.changes)

    def continues(self, known: KnownVersion | None) -> TypeGuard[KnownVersion]:
        """Tell whether the entries have all changes since a version."""
        return (
            known is not None
            and known.incarnation == self.incarnation
            and self.history.horizon.version <= known.version <= self.version
            and known.mark == self.history.mark(known.version)
        )

    def known(self, version: int | None = None) -> KnownVersion:
        """The name of a version for those who are told changes, by default of this one."""
        number = self.version if version is None else version
        return KnownVersion(self.incarnation, number, self.history.mark(number))

    # -- what comes after it

    def after(self, record: Record, record_hash: bytes) -> State:
        """The state after the next record.

        Raises:
            Misfit: the record does not follow.
        """
        return self.after_all([(record, record_hash)])

    def after_all(self, records: Sequence[tuple[Record, bytes]]) -> State:
        """The state after the next records, each with its hash."""
        draft = _Draft(self)
        try:
            for record, record_hash in records:
                draft.carry_out(record, record_hash)
            return draft.state()
        except (KeyError, ValueError) as error:
            if len(records) == 1:
                raise Misfit(str(error) if isinstance(error, ValueError) else f"{error} is not there", self) from error
        state = self
        for pair in records:  # One of them does not follow.
            state = state.after_all([pair])
        return state


def first_state(record_hash: bytes) -> State:
    """The state after record 1: no repository yet."""
    return State(1, record_hash)


def beginning(random: bytes, time: float) -> tuple[bytes, State]:
    """Record 1 and the state after it. `random`: 16 bytes of its own; `time`: seconds since the epoch."""
    content = encode_record(Record(number=1, parent=NOTHING, time=int(time * 1000), random=random))
    return content, first_state(hash_of(content))


class _Draft:
    """The next state while records are carried out."""

    def __init__(self, state: State) -> None:
        self._made = made = copy.copy(state)
        made.settings, made.tables, made.history = dict(state.settings), dict(state.tables), copy.copy(state.history)
        self._time = 0
        self._changes: dict[str, list[tuple[bytes, bytes | None, bytes | None]]] = {}

    def carry_out(self, record: Record, record_hash: bytes) -> None:
        """Apply a record.

        Raises:
            KeyError, ValueError: it does not follow; the draft is of no use then.
        """
        made = self._made
        if (record.number, record.parent) != (made.version + 1, made.hash):
            parent = f"record {made.version} is {made.hash.hex()}"
            raise ValueError(f"it is record {record.number} and follows {record.parent.hex()}, and {parent}")
        made.version, made.hash, self._time = record.number, record_hash, record.time
        if record.joins or record.dropped or record.forgotten or any(entry.deletes for entry in record.entries):
            made.dropped = dict(made.dropped)  # Of a day of pushes they may be 86,400.
        for entry in record.entries:
            self._carry_out(entry)
        for join in record.joins:
            self._join(join)
        for name in record.dropped:
            self._drop(name)
        for name in record.forgotten:
            made.dropped.pop(name, None)
        made.features += tuple(feature for feature in record.features if feature not in made.features)
        made.history.extend(record, record_hash)
        if any(entry.begins is not None and not entry.begins.complete for entry in record.entries):
            made.history.forget(record.time)

    def state(self) -> State:
        """The state after the records."""
        for table in list(self._changes):
            self._settle(table)
        return self._made

    def _carry_out(self, entry: Entry) -> None:
        if entry.begins is not None:
            self._begin(entry.begins)
        for change in entry.changes:
            self._change(change)
        if entry.pack is not None:
            self._made.packs += (entry.pack,)
        if entry.deletes:
            self._delete()

    def _begin(self, begins: Beginning) -> None:
        system_of(begins.vcs)
        made = self._made
        made.incarnation, made.vcs, made.kinds = begins.incarnation, begins.vcs, begins.kinds
        made.tables.setdefault(REFS, Table("ids"))
        made.settings_version = made.version

    def _change(self, change: Change) -> None:
        made = self._made
        if change.table == SETTINGS:
            made.settings_version = made.version
            if change.new is None:
                del made.settings[change.key.decode()]
            else:
                made.settings[change.key.decode()] = change.new
        elif change.table == DECLARED:
            self._declare(MAP + change.key.decode(), None if change.new is None else change.new.decode())
        else:
            self._changes.setdefault(change.table, []).append((change.key, change.old, change.new))

    def _declare(self, table: str, kind: str | None) -> None:
        self._settle(table)
        tables = self._made.tables
        if kind is None:
            del tables[table]
        else:
            old = tables.get(table)
            tables[table] = Table(kind) if old is None else old.of_kind(kind)

    def _delete(self) -> None:
        made, self._changes = self._made, {}
        for pack in made.packs:
            self._drop(pack.name)
        made.incarnation, made.vcs, made.kinds = b"", "", ()
        made.packs, made.tables, made.settings, made.settings_version = (), {}, {}, made.version

    def _join(self, join: Join) -> None:
        packs = self._made.packs
        names = [pack.name for pack in packs]
        at = names.index(join.packs[0]) if join.packs[0] in names else 0
        end = at + len(join.packs)
        if tuple(names[at:end]) != join.packs:
            raise ValueError(f"the packs {[name.hex() for name in join.packs]} do not lie side by side")
        self._made.packs = (*packs[:at], join.into, *packs[end:])
        for name in join.packs:
            self._drop(name)

    def _drop(self, name: Bytes16) -> None:
        self._made.dropped[name] = Dropped(self._time, self._made.version)

    def _settle(self, table: str) -> None:
        changes = self._changes.pop(table, [])
        if changes:
            self._made.tables[table] = self._made.tables[table].changed(changes)


def kind_of(state: State, word: str) -> bytes | None:
    """The declared kind of a map, as the value of a change."""
    found = state.map_kind(word)
    return None if found is None else found.encode()


def changed(table: str, key: bytes, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    """A key of a table that another value takes; nothing where it has that one."""
    if old != new:
        yield Change(table, key, old, new)


def following(
    state: State,
    time: float,
    entries: Sequence[Entry] = (),
    joins: Sequence[Join] = (),
    dropped: Sequence[bytes] = (),
    forgotten: Sequence[bytes] = (),
) -> tuple[bytes, State]:
    """The bytes of the record that follows a state, and the state then. `time`: seconds since the epoch; the rest as in
    `Record`. LimitExceeded: a reply could not carry the state. One that is too large already may become smaller."""
    record = Record(
        number=state.version + 1,
        parent=state.hash,
        time=int(time * 1000),
        entries=tuple(entries),
        joins=tuple(joins),
        dropped=tuple(dropped),
        forgotten=tuple(forgotten),
    )
    content = encode_record(record)
    after = state.after(record, hash_of(content))
    before, size = _size(state), _size(after)
    if size > MAX_STATE and size > before:
        raise LimitExceeded("bytes of refs, map entries and settings of a repository", size, MAX_STATE)
    if len(after.maps) > max(MAX_MAPS, len(state.maps)):
        raise LimitExceeded("maps of a repository", len(after.maps), MAX_MAPS)
    return content, after


def _size(state: State) -> int:
    settings = sum(len(name.encode()) + len(value) + OVERHEAD for name, value in state.settings.items())
    return settings + sum(table.held for table in state.tables.values())
