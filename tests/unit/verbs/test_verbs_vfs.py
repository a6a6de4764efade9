"""verbs.vfs: what each file-level verb does with a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from faulty_transport import FaultyTransport
from memory_transport import MemoryTransport

from smartserver.verbs.declare import Context, Files
from smartserver.verbs.vfs import BringRequest, LookRequest, get, get_published, list_dir, put, stat
from transports.base import ReadFile, Transport
from transports.errors import FileExists, TransportError, TransportFailed


class GivenFiles:
    """Implements `verbs.declare.Files`: contents of four bytes or more are sent in the body."""

    def __init__(self, tree: Transport, body: bytes = b"") -> None:
        self.tree = tree
        self.body = body
        self.sent = b""

    def brought(self, size: int) -> Iterator[bytes]:
        for _ in range(size):
            yield self.body[:1]
            self.body = self.body[1:]

    def give(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> bytes | None:
        content = b"".join(file.read_ranges(ranges))
        if len(content) < 4:
            return content
        self.sent += content
        return None


class FilesContext:
    """A `verbs.declare.Context` with as much as these verbs ask for."""

    def __init__(self, tree: Transport, body: bytes = b"") -> None:
        self.files: Files = GivenFiles(tree, body)


def context(tree: Transport, body: bytes = b"") -> Context:
    return cast("Context", FilesContext(tree, body))


@pytest.fixture
def storage() -> MemoryTransport:
    storage = MemoryTransport(lambda: 5.5)
    storage.make_directory("folder")
    storage.put("file", [b"content"])
    storage.put("abc", [b"abc"])
    return storage


def test_other_failures_are_never_an_answer(storage: MemoryTransport) -> None:
    storage.crash()
    for function in (get.function, get_published.function, list_dir.function, stat.function):
        with pytest.raises(TransportFailed):
            function(context(storage), LookRequest("file", True))


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
def test_a_file_that_cannot_be_written_whole_is_not_there(storage: MemoryTransport, fail_at: int) -> None:
    """Created, written twice, synced."""
    faulty = FaultyTransport(storage, fail_at=fail_at)
    with pytest.raises(TransportError, match="injected"):
        put.function(context(faulty, b"b"), BringRequest("new", b"a", 1))
    assert not storage.exists("new")
    assert faulty.calls == fail_at + (fail_at > 1)


def test_what_is_left_of_it_does_not_hide_the_failure(storage: MemoryTransport) -> None:
    faulty = FaultyTransport(storage, fail_at=2, mode="die")
    with pytest.raises(TransportFailed, match="write, call 2"):
        put.function(context(faulty), BringRequest("new", b"a"))


def test_an_existing_file_is_never_taken_for_a_failed_one(storage: MemoryTransport) -> None:
    with pytest.raises(FileExists):
        put.function(context(storage), BringRequest("file", b"x"))
    assert storage.get("file") == b"content"
