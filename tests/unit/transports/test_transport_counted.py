"""transports.decorators.counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from counting import Counting
from memory_transport import MemoryTransport

from transports import steps
from transports.base import Step
from transports.decorators.counted import CountedTransport
from transports.errors import NoSuchFile

OPENED = {"files_opened_to_read": 1}
PUT = {"files_opened_to_write": 1, "file_writes": 1, "file_syncs": 1}


def test_each_call_counts() -> None:
    transport, counting = CountedTransport(MemoryTransport()), Counting()
    transport.put("x", [b"12345", b"678"])
    assert counting.named == PUT | {"file_writes": 2, "file_written_bytes": 8}
    counting = Counting()
    assert transport.get("x") == b"12345678"
    assert counting.named == OPENED | {"file_reads": 1, "file_read_bytes": 8}
    counting = Counting()
    transport.sync_directory("")
    transport.link("x", "z")
    transport.rename("x", "y")
    transport.list_directory("")
    transport.stat("y")
    transport.append("y").write(b"9")
    transport.delete("y")
    transport.make_directory("a")
    transport.remove_directory("a")
    assert counting.named == {
        "files_opened_to_write": 1,
        "file_writes": 1,
        "file_written_bytes": 1,
        "file_syncs": 1,
        "file_renames": 2,
        "folder_listings": 1,
        "file_stats": 1,
        "file_deletions": 2,
    }


class Together(MemoryTransport):
    """Notes how many steps come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []

    def perform(self, steps: Sequence[Step]) -> None:
        self.groups.append(len(steps))
        super().perform(steps)


def test_steps_are_handed_on_together_and_counted_as_the_calls_they_are() -> None:
    storage = Together()
    transport, counting = CountedTransport(storage), Counting()
    changes = [
        steps.MakeDirectory("a"),
        steps.Put("a/x", b"123"),
        steps.Put("a/y", b"4567"),
        steps.Rename("a/y", "a/z"),
        steps.Put("a/new", b"0"),
        steps.Publish("a/new", "a/1"),
        steps.SyncDirectory("a"),
    ]
    transport.perform(changes)
    assert counting.named == {
        "files_opened_to_write": 3,
        "file_writes": 3,
        "file_written_bytes": 8,
        "file_syncs": 4,
        "file_renames": 2,
    }
    counting = Counting()
    reads: list[Step] = [
        steps.GetPublished("a/1"),
        steps.Get("absent"),
        steps.ReadRanges("a/z", [(0, 2), (3, 9)]),
        steps.ListDirectory("a"),
        steps.GetStat("a"),
    ]
    transport.perform(reads)
    assert counting.named == {
        "files_opened_to_read": 2,
        "file_reads": 3,
        "file_read_bytes": 4,
        "file_seeks": 1,
        "folder_listings": 1,
        "file_stats": 1,
    }
    assert storage.groups == [7, 5]
    counting = Counting()
    transport.perform([steps.Withdraw("a/1", "aside")])
    assert counting.named == {"file_deletions": 1}
    counting = Counting()
    with pytest.raises(NoSuchFile):
        transport.perform([steps.Get("a/x"), steps.Delete("absent")])
    assert not counting.named
