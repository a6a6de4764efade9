"""Transports agree: the one in memory behaves like the local one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from memory_transport import MemoryTransport

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


TestMemoryIsLikeLocal = MemoryIsLikeLocal.TestCase
