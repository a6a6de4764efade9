"""faulty_transport."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from faulty_transport import FaultMode, FaultyTransport

from transports.base import Step, Transport
from transports.errors import NoSuchFile, TransportFailed
from transports.memory import Aftermath, MemoryTransport
from transports.steps import Delete, Get, MakeDirectory, Put, Rename, SyncDirectory

CALLS = [
    "make_directory packs",
    "lock lock",
    "try_lock another",
    "create packs/new",
    "write packs/new",
    "write packs/new",
    "sync packs/new",
    "rename packs/pack",
    "sync_directory packs",
    "delete packs/pack",
    "remove_directory packs",
]


def work(transport: Transport) -> None:
    """One call of every kind that changes anything, and reads between them."""
    transport.make_directory("packs")
    packs = transport.child("packs")
    with transport.lock("lock"), transport.try_lock("another") as held:
        assert held
        packs.put("new", [b"0123", b"456789"])
        packs.rename("new", "pack")
        packs.sync_directory("")
        assert transport.get("packs/pack") == b"0123456789"
    packs.delete("pack")
    transport.remove_directory("packs")


def test_every_changing_call_is_counted_and_named() -> None:
    transport = FaultyTransport(MemoryTransport())
    work(transport)
    assert transport.log == CALLS
    assert transport.calls == len(CALLS)
    assert transport.child("packs").calls == len(CALLS)


@pytest.mark.parametrize("mode", ["fail", "tear", "lose", "die"])
def test_call_n_fails_and_says_which(mode: FaultMode) -> None:
    for n, call in enumerate(CALLS, start=1):
        transport = FaultyTransport(MemoryTransport(), fail_at=n, mode=mode)
        with pytest.raises(TransportFailed) as caught:
            work(transport)
        what, path = call.split()
        assert caught.value.path == path
        assert caught.value.reason == f"injected fault: {what}, call {n}, {mode}"
        assert transport.calls == n
    transport = FaultyTransport(MemoryTransport(), fail_at=len(CALLS) + 1, mode=mode)
    work(transport)
    assert transport.calls == len(CALLS)


def test_fail_does_nothing_once() -> None:
    transport = FaultyTransport(MemoryTransport(), fail_at=1, mode="fail")
    with pytest.raises(TransportFailed):
        transport.make_directory("packs")
    assert not transport.exists("packs")
    transport.make_directory("packs")
    assert transport.exists("packs")


def test_tear_writes_half() -> None:
    storage = MemoryTransport()
    transport = FaultyTransport(storage, fail_at=2, mode="tear")
    with pytest.raises(TransportFailed):
        transport.put("new", [b"0123456789"])
    assert storage.get("new") == b"01234"
    transport.put("next", [b"0123456789"])
    assert storage.get("next") == b"0123456789"


def test_tear_of_another_call_does_nothing() -> None:
    storage = MemoryTransport()
    with pytest.raises(TransportFailed):
        FaultyTransport(storage, fail_at=1, mode="tear").create("new")
    assert storage.list_directory("") == []


def test_lose_does_it_and_reports_failure() -> None:
    storage = MemoryTransport()
    storage.put("old", [b"x"])
    transport = FaultyTransport(storage, fail_at=1, mode="lose")
    with pytest.raises(TransportFailed):
        transport.rename("old", "new")
    assert storage.list_directory("") == ["new"]


def test_call_that_fails_by_itself_keeps_its_own_error() -> None:
    transport = FaultyTransport(MemoryTransport(), fail_at=1, mode="lose")
    with pytest.raises(NoSuchFile):
        transport.delete("absent")


@pytest.mark.parametrize("mode", ["fail", "lose", "die"])
def test_lock_that_fails_is_not_held(mode: FaultMode) -> None:
    storage = MemoryTransport()
    with (
        pytest.raises(TransportFailed),
        FaultyTransport(storage, fail_at=1, mode=mode).lock("lock"),
    ):
        raise AssertionError("held a lock that failed")
    with storage.try_lock("lock") as held:
        assert held
    with (
        pytest.raises(TransportFailed),
        FaultyTransport(storage, fail_at=1, mode=mode).try_lock("lock"),
    ):
        raise AssertionError("held a lock that failed")
    with storage.try_lock("lock") as held:
        assert held


def test_dead_is_dead() -> None:
    storage = MemoryTransport()
    storage.put("old", [b"old"])
    transport = FaultyTransport(storage, fail_at=2, mode="die")
    reader = transport.open_read("old")
    writer = transport.create("new")
    with pytest.raises(TransportFailed, match="call 2, die"):
        writer.write(b"x")
    asks: list[Callable[[], object]] = [
        lambda: writer.write(b"x"),
        writer.sync,
        lambda: reader.read_at(0, 1),
        reader.size,
        lambda: transport.get("old"),
        lambda: transport.open_read("old"),
        lambda: transport.stat("old"),
        lambda: transport.exists("old"),
        lambda: transport.list_directory(""),
        lambda: transport.create("next"),
        lambda: transport.delete("old"),
        lambda: transport.child("x").make_directory("y"),
        lambda: transport.lock("lock").__enter__(),
        lambda: transport.try_lock("lock").__enter__(),
    ]
    for ask in asks:
        with pytest.raises(TransportFailed, match="process is dead"):
            ask()
    writer.close()
    reader.close()
    assert transport.calls == 2
    assert storage.get("old") == b"old"


def test_lock_of_the_dead_is_free() -> None:
    storage = MemoryTransport()
    transport = FaultyTransport(storage, fail_at=2, mode="die")
    with pytest.raises(TransportFailed), transport.lock("lock"):
        transport.create("new")
    with storage.lock("lock"):
        assert storage.list_directory("") == ["lock"]


def test_death_and_a_crash_together() -> None:
    """The loop of the module's docstring, over every kind of aftermath: the file is old or new."""
    for aftermath in Aftermath:
        n, outcomes = 1, set()
        while True:
            storage = MemoryTransport()
            storage.put("root", [b"old"])
            storage.sync_directory("")
            faulty = FaultyTransport(storage, fail_at=n, mode="die")
            done = True
            try:
                faulty.put("next", [b"new"])
                faulty.rename("next", "root")
                faulty.sync_directory("")
            except TransportFailed:
                done = False
            found = storage.crash(aftermath, seed=n).get("root")
            assert found == b"new" if done else found in (b"old", b"new")
            outcomes.add(found)
            if faulty.calls < n:
                break
            n += 1
        assert n == 6
        assert outcomes == {b"old", b"new"}


def test_threads_share_the_count() -> None:
    transport = FaultyTransport(MemoryTransport(), fail_at=50, mode="fail")
    failures: list[TransportFailed] = []

    def make(number: int) -> None:
        for at in range(25):
            try:
                transport.make_directory(f"{number}-{at}")
            except TransportFailed as failure:
                failures.append(failure)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert transport.calls == 100
    assert len(failures) == 1
    assert len(transport.list_directory("")) == 99


STEPS = ["make_directory a", "create a/x", "write a/x", "sync a/x", "rename a/y", "sync_directory a", "delete a/y"]


def steps() -> list[Step]:
    """Each kind that changes something, and one that asks."""
    made = [MakeDirectory("a"), Put("a/x", b"1234"), Rename("a/x", "a/y"), Get("a/y")]
    return [*made, SyncDirectory("a"), Delete("a/y")]


@pytest.mark.parametrize("mode", ["fail", "tear", "lose", "die"])
def test_each_step_fails_on_its_own(mode: FaultMode) -> None:
    for n, call in enumerate(STEPS, start=1):
        storage = MemoryTransport()
        transport = FaultyTransport(storage, fail_at=n, mode=mode)
        with pytest.raises(TransportFailed, match=f"injected fault: {call.split()[0]}, call {n}, {mode}"):
            transport.perform(steps())
        assert transport.log == STEPS[:n]
        torn = {"fail": b"", "die": b"", "tear": b"12", "lose": b"1234"}
        if n == 3:
            assert storage.get("a/x") == torn[mode]
    whole = FaultyTransport(MemoryTransport())
    whole.perform(steps())
    assert whole.log == STEPS


def test_a_dead_process_reads_no_ranges() -> None:
    storage = MemoryTransport()
    storage.put("x", [b"x"])
    transport = FaultyTransport(storage, fail_at=1, mode="die")
    file = transport.open_read("x")
    assert file.read_ranges([(0, 1)]) == [b"x"]
    with pytest.raises(TransportFailed):
        transport.delete("x")
    with pytest.raises(TransportFailed, match="the process is dead"):
        file.read_ranges([(0, 1)])
