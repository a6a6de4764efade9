"""transports.decorators.counted."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from transports import steps
from transports.base import Step
from transports.decorators.counted import CountedTransport, Counts
from transports.errors import NoSuchFile
from transports.memory import MemoryTransport


def test_each_call_counts() -> None:
    transport = CountedTransport(MemoryTransport())
    transport.put("x", [b"12345", b"678"])
    assert transport.counts == Counts(files_opened=1, bytes_written=8, syncs=1)
    before = transport.counts
    assert transport.get("x") == b"12345678"
    assert transport.counts - before == Counts(files_opened=1, reads=1, bytes_read=8)
    before = transport.counts
    file = transport.open_read("x")
    file.read_at(0, 3)
    file.read_at(6, 100)
    file.size()
    file.close()
    assert transport.counts - before == Counts(files_opened=1, reads=2, bytes_read=5)
    before = transport.counts
    transport.sync_directory("")
    transport.rename("x", "y")
    transport.list_directory("")
    transport.stat("y")
    assert transport.counts - before == Counts(syncs=1)


def test_items_wider_than_a_byte_count_as_bytes() -> None:
    transport = CountedTransport(MemoryTransport())
    transport.create("x").write(memoryview(bytes(16)).cast("I"))
    assert transport.counts.bytes_written == 16


def test_failed_calls_do_not_count() -> None:
    transport = CountedTransport(MemoryTransport())
    for ask in (transport.get, transport.open_read, transport.sync_directory):
        with pytest.raises(NoSuchFile):
            ask("absent")
    assert transport.counts == Counts()


def test_children_count_together() -> None:
    transport = CountedTransport(MemoryTransport())
    transport.make_directory("a")
    child = transport.child("a")
    child.put("x", [b"1"])
    assert child.counts == transport.counts == Counts(files_opened=1, bytes_written=1, syncs=1)


def test_threads_count_for_themselves_and_together() -> None:
    transport = CountedTransport(MemoryTransport())
    transport.put("x", [b"12"])
    before, mine = transport.counts, transport.thread_counts

    def read(times: int) -> Counts:
        start = transport.thread_counts
        for _ in range(times):
            transport.get("x")
        return transport.thread_counts - start

    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(read, range(100, 500, 50)))
    assert parts == [Counts(times, times, 2 * times) for times in range(100, 500, 50)]
    assert transport.counts - before == sum(parts, Counts())
    assert transport.thread_counts == mine


def test_sum_and_difference_cover_every_field() -> None:
    one, two = Counts(1, 2, 3, 4, 5), Counts(10, 20, 30, 40, 50)
    assert one + two == Counts(11, 22, 33, 44, 55)
    assert two - one == Counts(9, 18, 27, 36, 45)


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
    transport = CountedTransport(storage)
    changes = [
        steps.MakeDirectory("a"),
        steps.Put("a/x", b"123"),
        steps.Put("a/y", b"4567"),
        steps.Rename("a/y", "a/z"),
        steps.Append("a/x", b"89"),
        steps.SyncDirectory("a"),
    ]
    transport.perform(changes)
    assert transport.counts == Counts(files_opened=3, bytes_written=9, syncs=4)
    before = transport.counts
    reads: list[Step] = [
        steps.Get("a/x"),
        steps.Get("absent"),
        steps.ReadRanges("a/z", [(0, 2), (3, 9)]),
        steps.ListDirectory("a"),
        steps.GetStat("a"),
    ]
    transport.perform(reads)
    assert transport.counts - before == Counts(files_opened=2, reads=3, bytes_read=8)
    assert storage.groups == [6, 5]
    before = transport.counts
    with pytest.raises(NoSuchFile):
        transport.perform([steps.Get("a/x"), steps.Delete("absent")])
    assert transport.counts == before


def test_ranges_are_handed_on_together() -> None:
    transport = CountedTransport(MemoryTransport())
    transport.put("x", [b"0123456789"])
    before = transport.counts
    assert transport.open_read("x").read_ranges([(0, 2), (5, 3), (9, 9)]) == [b"01", b"567", b"9"]
    assert transport.counts - before == Counts(files_opened=1, reads=3, bytes_read=6)
