"""States after any records agree with plain dictionaries: applied one by one, and with checkpoints in between."""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from smartserver.store.checkpoint import decode_checkpoint, encode_checkpoint
from smartserver.store.model import KnownVersion
from smartserver.store.record import (
    Beginning,
    Change,
    Entry,
    Join,
    PackEntry,
    Record,
    decode_record,
    encode_record,
    hash_of,
)
from smartserver.store.state import DECLARED, MAP, REFS, SETTINGS, beginning

NAMES = st.integers(0, 300).map(lambda number: b"refs/heads/%d" % number)
VALUES = st.binary(max_size=8)
HOUR = 3600 * 1000


class Told(NamedTuple):
    """The knowledge that a client may have: a version, and the content at that version."""

    known: KnownVersion
    tables: dict[str, dict[bytes, bytes]]
    settings: dict[str, bytes]


class States(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(1)
        self.now = 1_700_000_000_000
        _, self.applied = beginning(bytes(16), self.now / 1000)
        """The state by all records, one after the other."""
        self.read = self.applied
        """The same state, read from checkpoints."""
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.settings: dict[str, bytes] = {}
        self.packs: list[PackEntry] = []
        self.dropped: set[bytes] = set()
        self.requests: dict[bytes, tuple[int, int]] = {}
        """By request: the version that it made, and the time."""
        self.told: list[Told] = []

    # -- records

    def publish(self, *entries: Entry, **what: object) -> None:
        record = Record(number=self.read.version + 1, parent=self.read.hash, time=self.now, entries=entries, **what)  # type: ignore[arg-type]
        content = encode_record(record)
        decoded = decode_record(content, "log")
        assert decoded == record
        self.applied = self.applied.after(decoded, hash_of(content))
        self.read = self.read.after(decoded, hash_of(content))
        for entry in entries:
            self.requests[entry.request] = (record.number, record.time)
        if self.read.exists:
            known = KnownVersion(self.read.incarnation, self.read.version, self.read.mark)
            self.told.append(Told(known, {name: dict(rows) for name, rows in self.tables.items()}, dict(self.settings)))

    def entry(self, changes: list[Change], **what: object) -> Entry:
        return Entry(self.random.randbytes(16), "joe", b"answer", tuple(changes), **what)  # type: ignore[arg-type]

    def pack(self) -> PackEntry:
        return PackEntry(self.random.randbytes(16), 10, bytes(16), 5, bytes(16), 1, 1)

    def change(self, table: str, key: bytes, new: bytes | None) -> list[Change]:
        old = self.tables[table].get(key)
        if new is None:
            self.tables[table].pop(key, None)
        else:
            self.tables[table][key] = new
        return [] if old == new else [Change(table, key, old, new)]

    @initialize()
    def create(self) -> None:
        self.tables = {REFS: {}}
        self.publish(self.entry([], begins=Beginning(self.random.randbytes(16), "git sha1", ())))

    @precondition(lambda self: not self.read.exists)
    @rule()
    def recreate(self) -> None:
        self.create()

    @precondition(lambda self: self.read.exists)
    @rule(groups=st.lists(st.dictionaries(NAMES, st.none() | VALUES, max_size=5), min_size=1, max_size=3))
    def push(self, groups: list[dict[bytes, bytes | None]]) -> None:
        """Publish several requests in one record; each has a pack, and sees the changes of those before it."""
        entries = []
        for group in groups:
            changes = [change for key, new in group.items() for change in self.change(REFS, key, new)]
            self.packs.append(self.pack())
            entries.append(self.entry(changes, pack=self.packs[-1]))
        self.publish(*entries)

    @precondition(lambda self: self.read.exists)
    @rule(first=st.integers(0, 20), count=st.integers(900, 2500))
    def push_many(self, first: int, count: int) -> None:
        keys = [b"refs/many/%d" % number for number in range(first, first + count)]
        self.publish(self.entry([change for key in keys for change in self.change(REFS, key, key[-3:])]))

    @precondition(lambda self: self.read.exists)
    @rule(word=st.sampled_from(["a", "b"]), kind=st.sampled_from(["ids", "opaque"]), key=NAMES, value=VALUES)
    def declare(self, word: str, kind: str, key: bytes, value: bytes) -> None:
        old = self.read.map_kind(word)
        declared = Change(DECLARED, word.encode(), None if old is None else old.encode(), kind.encode())
        self.tables.setdefault(MAP + word, {})
        self.publish(self.entry([declared, *self.change(MAP + word, key, value)]))
        assert self.read.map_kind(word) == kind

    @precondition(lambda self: self.tables.get(MAP + "a"))
    @rule()
    def remove_map(self) -> None:
        changes = [change for key in list(self.tables[MAP + "a"]) for change in self.change(MAP + "a", key, None)]
        kind = self.read.map_kind("a")
        assert kind is not None
        del self.tables[MAP + "a"]
        self.publish(self.entry([*changes, Change(DECLARED, b"a", kind.encode(), None)]))

    @precondition(lambda self: self.read.exists)
    @rule(name=st.sampled_from(["HEAD", "other"]), value=VALUES)
    def configure(self, name: str, value: bytes) -> None:
        change = Change(SETTINGS, name.encode(), self.settings.get(name), value)
        self.settings[name] = value
        self.publish(self.entry([change]))

    @precondition(lambda self: len(self.packs) > 2)
    @rule(at=st.integers(0, 20))
    def repack(self, at: int) -> None:
        at %= len(self.packs) - 1
        names = tuple(pack.name for pack in self.packs[at : at + 2])
        self.packs[at : at + 2] = [self.pack()]
        self.dropped |= set(names)
        self.publish(joins=(Join(names, self.packs[at]),))

    @precondition(lambda self: self.dropped)
    @rule()
    def forget(self) -> None:
        self.publish(forgotten=(self.dropped.pop(),))

    @precondition(lambda self: self.read.exists)
    @rule()
    def delete(self) -> None:
        self.dropped |= {pack.name for pack in self.packs}
        self.tables, self.settings, self.packs = {}, {}, []
        self.publish(self.entry([], deletes=True))

    # -- time, files

    @rule(hours=st.sampled_from([1, 20, 30, 100]))
    def wait(self, hours: int) -> None:
        self.now += hours * HOUR

    @rule()
    def checkpoint(self) -> None:
        self.read = decode_checkpoint(encode_checkpoint(self.read), "checkpoint")

    # -- what holds

    @invariant()
    def records_one_by_one_are_the_checkpoint(self) -> None:
        assert encode_checkpoint(self.applied) == encode_checkpoint(self.read)

    @invariant()
    def it_is_what_was_done(self) -> None:
        for state in (self.applied, self.read):
            assert {name: dict(table) for name, table in state.tables.items()} == self.tables
            assert all(
                list(table) == sorted(table) and len(table) == len(list(table)) for table in state.tables.values()
            )
            size = {
                name: sum(len(key) + len(value) for key, value in rows.items()) for name, rows in self.tables.items()
            }
            assert {name: table.size for name, table in state.tables.items()} == size
            assert (state.settings, list(state.packs)) == (self.settings, self.packs)
            assert set(state.dropped) == self.dropped

    @invariant()
    def clients_are_told_what_they_lack(self) -> None:
        if not self.read.exists or not self.told:
            return
        told = self.random.choice(self.told)
        changes = self.read.changes_since(told.known)
        if changes.since is None:
            assert dict(changes.refs) == self.tables[REFS]
            assert dict(changes.settings) == self.settings
            assert {name: dict(entries) for name, entries in changes.maps.items()} == {
                name.removeprefix(MAP): rows for name, rows in self.tables.items() if name != REFS
            }
            return
        refs = {**told.tables[REFS], **changes.refs}
        assert {key: value for key, value in refs.items() if value is not None} == self.tables[REFS]
        assert (dict(changes.settings) or told.settings) == self.settings

    @invariant()
    def requests_are_remembered(self) -> None:
        for request, made in self.requests.items():
            found = self.read.history.find(request)
            assert found is not None
            assert (found.version, found.time) == made


TestStates = States.TestCase
TestStates.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)
