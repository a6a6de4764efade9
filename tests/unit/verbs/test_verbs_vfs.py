"""verbs.vfs: what each file-level verb does with a store."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import cast

import pytest
from faulty_transport import FaultyTransport
from memory_transport import MemoryTransport

from smartserver.server.jailed import JailedTransport
from smartserver.server.open_files import OpenFiles
from smartserver.server.vfs import RequestFiles
from smartserver.verbs.declare import Context
from smartserver.verbs.vfs import BringRequest, LookRequest, get, get_published, list_dir, put, stat
from transports.base import Transport
from transports.errors import FileExists, TransportError, TransportFailed


def context(tree: Transport, body: bytes = b"") -> Context:
    """A `verbs.declare.Context` with as much as these verbs ask for."""
    files = RequestFiles(cast("JailedTransport", tree), io.BytesIO(body), cast("OpenFiles", None))
    return cast("Context", SimpleNamespace(files=files))


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
