"""Transports agree with a model: one behaves like another, and a crash leaves a state that its aftermath allows."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from memory_transport import Aftermath, MemoryTransport

from transports.base import EntryKind, Transport
from transports.errors import TransportError
from transports.local import LocalTransport

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENT = st.binary(max_size=20)


def tree(transport: Transport, path: str = "") -> dict[str, bytes | None]:
    """Return every path with its content; None for a folder."""
    found: dict[str, bytes | None] = {}
    for name in transport.list_directory(path):
        full = f"{path}/{name}" if path else name
        if transport.stat(full).kind is EntryKind.DIRECTORY:
            found |= {full: None, **tree(transport, full)}
        else:
            found[full] = transport.get(full)
    return found


class MemoryIsLikeLocal(RuleBasedStateMachine):
    """Makes each call on both: results are equal, or errors have the same class and name the same path."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="transport-"))
        self.local, self.memory = LocalTransport(self.folder), MemoryTransport()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def both(self, method: str, *arguments: object) -> None:
        outcomes: list[object] = []
        for transport in (self.local, self.memory):
            try:
                outcomes.append(getattr(transport, method)(*arguments))
            except TransportError as error:
                outcomes.append((type(error), error.wire_arguments()["path"]))
        assert outcomes[0] == outcomes[1], (method, arguments)

    @rule(path=PATHS, content=CONTENT)
    def put(self, path: str, content: bytes) -> None:
        self.both("put", path, [content])

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.both("make_directory", path)

    @rule(path=PATHS)
    def remove_directory(self, path: str) -> None:
        self.both("remove_directory", path)

    @rule(path=PATHS)
    def sync_directory(self, path: str) -> None:
        self.both("sync_directory", path)

    @rule(path=PATHS)
    def list_directory(self, path: str) -> None:
        self.both("list_directory", path)

    @rule(path=PATHS)
    def get(self, path: str) -> None:
        self.both("get", path)

    @rule(path=PATHS)
    def delete(self, path: str) -> None:
        """Systems refuse to delete a folder with different errors; the invariant checks that nothing changes."""
        try:
            folder = self.memory.stat(path).kind is EntryKind.DIRECTORY
        except TransportError:
            folder = False
        if not folder:
            self.both("delete", path)

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        """Systems differ in which of several errors they report first, but not in whether the rename is done."""
        done: list[bool] = []
        for transport in (self.local, self.memory):
            with contextlib.suppress(TransportError):
                transport.rename(old, new)
                done.append(True)
        assert len(done) != 1, (old, new, tree(self.local), tree(self.memory))

    @invariant()
    def equal_trees(self) -> None:
        assert tree(self.local) == tree(self.memory)


class SyncedOutlivesACrash(RuleBasedStateMachine):
    """The names in a folder at the last sync survive a crash that forgets all later changes. Every other aftermath
    leaves, for each name, one of its states since then."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = MemoryTransport()
        self.synced: dict[str, bytes] = {}
        self.live: dict[str, bytes] = {}
        self.since: dict[str, set[bytes | None]] = {}

    def note(self) -> None:
        for name in {*self.synced, *self.live, *self.since}:
            self.since.setdefault(name, {self.synced.get(name)}).add(self.live.get(name))

    @rule(name=NAMES, content=CONTENT)
    def put(self, name: str, content: bytes) -> None:
        if name not in self.live:
            self.transport.put(name, [content])
            self.live[name] = content
            self.note()

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if old in self.live:
            self.transport.rename(old, new)
            self.live[new] = self.live.pop(old)
            self.note()

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.live.pop(name, None) is not None:
            self.transport.delete(name)
            self.note()

    @rule()
    def sync(self) -> None:
        self.transport.sync_directory("")
        self.synced = dict(self.live)
        self.since = {}

    @rule()
    def crash_durable_only(self) -> None:
        self.transport = self.transport.crash(Aftermath.DURABLE_ONLY)
        assert tree(self.transport) == self.synced
        self.restart()

    @rule(aftermath=st.sampled_from([Aftermath.EVERYTHING, Aftermath.TORN]), seed=st.integers(0, 9))
    def crash_with_all_names(self, aftermath: Aftermath, seed: int) -> None:
        """`put` synced the content, so no content is torn."""
        self.transport = self.transport.crash(aftermath, seed)
        assert tree(self.transport) == self.live
        self.restart()

    @rule(seed=st.integers(0, 1000))
    def crash_with_some(self, seed: int) -> None:
        self.transport = self.transport.crash(Aftermath.SOME, seed)
        found = tree(self.transport)
        for name in {*found, *self.synced, *self.live}:
            assert found.get(name) in self.since.get(name, {self.synced.get(name)})
        self.restart()

    def restart(self) -> None:
        """Take the content after a crash as durable."""
        found = {name: content for name, content in tree(self.transport).items() if content is not None}
        self.synced, self.live, self.since = dict(found), dict(found), {}


TestMemoryIsLikeLocal = MemoryIsLikeLocal.TestCase
TestSyncedOutlivesACrash = SyncedOutlivesACrash.TestCase
