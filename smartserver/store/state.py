"""`State`: the content of a repository after a record of its log. `after` computes the state after the next record.

A snapshot opens the packs of a state, requests are judged on a state, and the changes that are sent to a client are
read from a state. `checkpoint` writes a state to a file.
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
"""The names of tables are `REFS` and, for a map, `MAP` followed by the name of the map."""
SETTINGS = "settings"
DECLARED = "maps"
"""`SETTINGS` and `DECLARED` stand in records for changes of settings and of the kinds of maps. A state has no tables of
these names."""

MAX_STATE = 60 << 20
"""The most bytes of all refs, entries of maps and settings, so that a reply of 64 MiB can carry them to a client that
has none. 500,000 refs of 120 bytes are 57.2 MiB; 4 MiB are left for the rest of the reply. An entry counts as at least
`LEAST_ENTRY` bytes, so a state has at most 2**19 entries. A client accepts no more, because each costs it memory."""

MAX_MAPS = 64
"""The most maps of a repository. A client accepts no more."""
_REF = msgspec.msgpack.Decoder(Annotated[tuple[Tip, ...], msgspec.Meta(min_length=1)])
_encode = msgspec.msgpack.Encoder().encode


class Misfit(Exception):
    """A record that does not follow the state `before`: it belongs to another line of changes."""

    def __init__(self, why: str, before: State) -> None:
        super().__init__(why)
        self.before = before


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """The record `number` that dropped a pack, and its `time` in milliseconds since the epoch."""

    time: int
    number: Natural


def encode_value(value: RefValue) -> bytes:
    """Encode the value of a ref for a table, with its tips sorted by id."""
    if not value:
        raise ValueError("a ref without tips")
    return _encode(encode_ref(sorted(value, key=attrgetter("id"))))


def decode_value(value: bytes) -> RefValue:
    """Decode the value of a ref from a table."""
    try:
        found: RefValue = _REF.decode(value)
    except msgspec.DecodeError as error:
        raise CorruptFile("log", 0, f"the value of a ref: {error}") from error
    return found


@dataclass(eq=False)
class State:
    """A repository after record `version`. A state never changes: `_Draft` changes a copy.

    `hash`: the hash of record `version`. `tables`: the tables by name, `REFS` and those of maps. `dropped`: the dropped
    packs by name.
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
        """True if the repository was created and is not deleted."""
        return bool(self.vcs)

    @property
    def is_incomplete(self) -> bool:
        """True if the repository waits for further requests of a copy."""
        return INCOMPLETE in self.settings

    @property
    def mark(self) -> int:
        """The mark of this version."""
        return self.history.mark(self.version)

    # -- content

    def refs(self) -> Mapping[bytes, RefValue]:
        """Return all refs, in the order of their names."""
        return DecodedTable(self.table(REFS), decode_value)

    def ref(self, name: bytes) -> RefValue | None:
        """Return the value of a ref, or None."""
        value = self.table(REFS).get(name)
        return None if value is None else decode_value(value)

    @property
    def maps(self) -> Mapping[str, Mapping[bytes, bytes]]:
        """The entries of each map, by the name of the map."""
        return {name.removeprefix(MAP): table for name, table in self.tables.items() if name.startswith(MAP)}

    def map(self, word: str) -> Mapping[bytes, bytes]:
        """Return the entries of a map; empty if no map of that name was declared."""
        return self.table(MAP + word)

    def map_kind(self, word: str) -> str | None:
        """Return the declared kind of a map; None if the map is not declared."""
        found = self.tables.get(MAP + word)
        return None if found is None else found.kind

    def table(self, name: str) -> Table:
        """Return the table with a name; an empty table if it does not exist."""
        return self.tables.get(name) or Table("opaque")

    # -- changes since a version

    def changes_since(self, known: KnownVersion | None) -> Changes:
        """Return the changes since the version that a client knows; the whole state if the history does not reach back
        to this version."""
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
        """Return the keys of a map's entries that changed since a version; None if the history does not reach back to
        this version."""
        if not self.continues(known):
            return None
        return frozenset(change.key for change in self._changes(known.version) if change.table == MAP + word)

    def _changes(self, version: int) -> Iterator[Change]:
        return (change for entry in self.history.after(version) for change in entry.changes)

    def continues(self, known: KnownVersion | None) -> TypeGuard[KnownVersion]:
        """Tell whether the state descends from a version, and its history has all changes since then."""
        return (
            known is not None
            and known.incarnation == self.incarnation
            and self.history.horizon.version <= known.version <= self.version
            and known.mark == self.history.mark(known.version)
        )

    def known(self, version: int | None = None) -> KnownVersion:
        """Return the `KnownVersion` of a version; by default of the current one. A client sends its `KnownVersion` to
        receive only later changes."""
        number = self.version if version is None else version
        return KnownVersion(self.incarnation, number, self.history.mark(number))

    # -- the next state

    def after(self, record: Record, record_hash: bytes) -> State:
        """Return the state after the next record.

        Raises:
            Misfit: the record does not follow this state.
        """
        return self.after_all([(record, record_hash)])

    def after_all(self, records: Sequence[tuple[Record, bytes]]) -> State:
        """Return the state after several records, given in order, each with its hash. Raise Misfit as `after` does."""
        draft = _Draft(self)
        try:
            for record, record_hash in records:
                draft.carry_out(record, record_hash)
            return draft.state()
        except (KeyError, ValueError) as error:
            if len(records) == 1:
                said = str(error) if isinstance(error, ValueError) else f"{error} does not exist"
                raise Misfit(said, self) from error
        state = self
        for pair in records:  # Find the one that does not follow.
            state = state.after_all([pair])
        return state


def first_state(record_hash: bytes) -> State:
    """Return the state after record 1, in which the repository does not exist yet."""
    return State(1, record_hash)


def beginning(random: bytes, time: float) -> tuple[bytes, State]:
    """Return record 1 and the state after it. `random`: 16 bytes that make the record unique. `time`: seconds since the
    epoch."""
    content = encode_record(Record(number=1, parent=NOTHING, time=int(time * 1000), random=random))
    return content, first_state(hash_of(content))


class _Draft:
    """The next state while it is computed: a copy of a state, to which records are applied."""

    def __init__(self, state: State) -> None:
        self._made = made = copy.copy(state)
        made.settings, made.tables, made.history = dict(state.settings), dict(state.tables), copy.copy(state.history)
        self._time = 0
        self._changes: dict[str, list[tuple[bytes, bytes | None, bytes | None]]] = {}

    def carry_out(self, record: Record, record_hash: bytes) -> None:
        """Apply a record.

        Raises:
            KeyError, ValueError: the record does not follow the state; the draft is unusable then.
        """
        made = self._made
        if (record.number, record.parent) != (made.version + 1, made.hash):
            parent = f"record {made.version} is {made.hash.hex()}"
            raise ValueError(f"it is record {record.number} and follows {record.parent.hex()}, and {parent}")
        made.version, made.hash, self._time = record.number, record_hash, record.time
        if record.joins or record.dropped or record.forgotten or any(entry.deletes for entry in record.entries):
            made.dropped = dict(made.dropped)  # Copied only when needed: a day of pushes may drop 86,400 packs.
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
        """Return the state after the applied records."""
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
    """Return the declared kind of a map, encoded as the value of a change; None if it is not declared."""
    found = state.map_kind(word)
    return None if found is None else found.encode()


def changed(table: str, key: bytes, old: bytes | None, new: bytes | None) -> Iterator[Change]:
    """Yield the change of a key from `old` to `new`. Yield nothing if the two are equal."""
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
    """Return the bytes of the record that follows a state, and the state after this record. `time`: seconds since the
    epoch; the other arguments are as in `Record`. Raise LimitExceeded if the new state is over `MAX_STATE` or
    `MAX_MAPS` and larger than the old one."""
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
