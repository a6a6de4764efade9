"""store.publish.base: new files are there whole, or not at all; a name that is taken keeps what it has."""

from __future__ import annotations

import pytest
from faulty_transport import FaultyTransport

from smartserver.store.publish.base import write_new
from transports.errors import FileExists, TransportFailed
from transports.memory import MemoryTransport
from transports.steps import Put

FILES = [Put("one", b"1"), Put("two", b"2")]


def test_what_was_written_is_deleted_where_it_is_closed() -> None:
    storage = MemoryTransport()
    written = write_new(storage, FILES)
    assert storage.list_directory("") == ["one", "two"]
    written.close()
    assert storage.list_directory("") == []


def test_what_fails_leaves_nothing() -> None:
    storage = MemoryTransport()
    with pytest.raises(TransportFailed):
        write_new(FaultyTransport(storage, fail_at=5, mode="fail"), FILES)
    assert storage.list_directory("") == []


def test_a_name_that_is_taken_keeps_its_content() -> None:
    storage = MemoryTransport()
    storage.put("two", [b"another's"])
    with pytest.raises(FileExists):
        write_new(storage, FILES)
    assert storage.get("two") == b"another's"
