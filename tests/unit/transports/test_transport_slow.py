"""transports.decorators.slow: what is a trip, and that each takes its time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from transports.base import Transport
from transports.decorators.slow import SlowTransport
from transports.memory import MemoryTransport
from transports.steps import Get, MakeDirectory, Put, Rename


def filled() -> MemoryTransport:
    storage = MemoryTransport()
    storage.make_directory("folder")
    storage.put("folder/x", [b"0123456789"])
    return storage


def reading(transport: Transport) -> None:
    file = transport.open_read("folder/x")
    assert file.read_ranges([(0, 2), (8, 9)]) == [b"01", b"89"]
    assert (file.read_at(3, 1), file.size()) == (b"3", 10)
    file.close()


def writing(transport: Transport) -> None:
    file = transport.create("new")
    file.write(b"1")
    file.write(b"2")
    file.sync()
    file.close()


def locking(transport: Transport) -> None:
    with transport.lock("lock"), transport.try_lock("lock") as held:
        assert not held


@pytest.mark.parametrize(
    ("use", "trips"),
    [
        (lambda transport: transport.get("folder/x"), 1),
        (lambda transport: transport.child("folder").stat("x"), 1),
        (lambda transport: transport.exists("folder/x"), 1),
        (lambda transport: transport.list_directory(""), 1),
        (lambda transport: transport.put("new", [b"a", b"b"]), 1),
        (lambda transport: transport.append("folder/x").close(), 1),
        (lambda transport: transport.rename("folder/x", "y"), 1),
        (lambda transport: transport.delete("folder/x"), 1),
        (lambda transport: transport.make_directory("new"), 1),
        (lambda transport: transport.remove_directory("folder/none"), 1),
        (lambda transport: transport.sync_directory("folder"), 1),
        (lambda transport: transport.real_path("folder"), 1),
        (lambda transport: transport.describe("folder"), 0),
        (lambda transport: transport.perform([]), 0),
        (reading, 4),
        (writing, 2),
        (locking, 2),
        (lambda transport: transport.perform([MakeDirectory("n"), Put("n/a"), Rename("n/a", "n/b"), Get("n/b")]), 1),
    ],
)
def test_trips(use: Callable[[Transport], object], trips: int) -> None:
    passed: list[float] = []
    storage = filled()
    storage.make_directory("folder/none")
    transport = SlowTransport(storage, 0.25, passed.append)
    use(transport)
    assert transport.trips == transport.child("folder").trips == trips
    assert passed == [0.25] * trips
