"""store.remote: a store behind a link is asked for much at once; budgets of trips, damage is told as of a local one."""

from __future__ import annotations

import random
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import MAIN, Far, History, Repeatable, check_whole, push
from interrupted import Interrupted
from memory_transport import MemoryTransport
from trips import Trips

from smartserver.errors import CorruptFile
from smartserver.store import remote
from smartserver.store.open_pack import index_path
from smartserver.store.pack import PackReader
from smartserver.store.quarantine import Quarantine
from smartserver.store.remote import RemotePack, read_across
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.upkeep import KEPT
from transports.base import Transport

BUDGETS = tomllib.loads((Path(__file__).parents[2] / "budgets.toml").read_text())["store"]


class Stored:
    """A repository of seven pushes, and a history that goes on."""

    def __init__(self) -> None:
        self.storage = MemoryTransport()
        self.history = History()
        self.line = self.history.line(20)
        self.trips = Trips(self.storage)
        self.push(self.line[:3])
        for tip in self.line[3:9]:
            self.push([tip])

    def push(self, revisions: list[bytes], name: bytes = MAIN) -> None:
        push(PackRepository(Far(self.storage), "project"), self.history, revisions, {name: revisions[-1]})

    def repository(self) -> PackRepository:
        """The repository, as a new process sees it."""
        return PackRepository(self.trips, "project", randomness=Repeatable(5))

    def snapshot(self) -> Snapshot:
        return self.repository().snapshot()


@pytest.fixture
def stored() -> Stored:
    return Stored()


def pull(stored: Stored, count: int) -> bytes:
    snapshot = stored.snapshot()
    assert dict(snapshot.state.refs())
    last = snapshot.graph.count
    reader = snapshot.read_ranges(((last - count, last),))
    pieces = []
    while piece := reader.read(300):
        pieces.append(piece)
    assert reader.left == 0
    return b"".join(pieces)


def push_one(stored: Stored, store: Transport) -> None:
    tip = stored.line[9]
    push(PackRepository(store, "project", randomness=Repeatable(5)), stored.history, [tip], {MAIN: tip})


def test_nothing_that_names_a_pack_is_sent_before_all_that_brings_it_was_answered(stored: Stored) -> None:
    push_one(stored, stored.trips)
    trips = [[step.partition(" ")[::2] for step in trip.split(", ")] for trip in stored.trips.log]
    brings, publishes = (
        next(at for at, trip in enumerate(trips) if any(name == first for name, _ in trip))
        for first in ("Rename", "Publish")
    )
    assert publishes == brings + 1
    assert [path.rpartition(".")[2] for name, path in trips[brings] if name == "Put"] == ["record", "pack", "idx"]
    assert {name for name, _ in trips[brings]} == {"Put", "Rename", "SyncDirectory", "GetPublished", "GetStat"}
    assert trips[publishes][0][0] == "Publish"


def test_a_record_that_was_written_down_in_vain_is_deleted(stored: Stored) -> None:
    other = b"refs/heads/other"
    busy = Interrupted(stored.storage, lambda call, path: call == "link", lambda: stored.push([stored.line[3]], other))
    push_one(stored, Far(busy))
    assert not busy.acts
    refs = PackRepository(stored.storage, "project").snapshot().state.refs()
    assert {name: value[0].id for name, value in refs.items()} == {MAIN: stored.line[9], other: stored.line[3]}
    assert stored.storage.list_directory("project/incoming") == []


def push_much(stored: Stored) -> None:
    tip = stored.history.commit({"a": random.Random(1).randbytes(1 << 20)}, (stored.line[8],), "much")
    push(stored.repository(), stored.history, [tip], {MAIN: tip})


def joined_a_day_ago(stored: Stored) -> None:
    stored.repository().repack()
    del stored.trips.log[:]
    tomorrow = PackRepository(stored.trips, "project", clock=lambda: time.time() + KEPT)
    assert tomorrow.collect_garbage_files() == 14
    assert len(stored.storage.list_directory("project/packs")) == 2


def test_a_pack_that_is_not_wanted_is_deleted_together(stored: Stored) -> None:
    quarantine = Quarantine(stored.trips.child("project"), b"request", Repeatable(7))
    quarantine.pack.write(b"pack")
    quarantine.put_index(4, b"", [b"index"], 1, 1)
    quarantine.folder.perform(quarantine.moves())
    del stored.trips.log[:]
    before = set(stored.storage.list_directory("project/packs"))
    quarantine.discard()
    assert len(before - set(stored.storage.list_directory("project/packs"))) == 2
    assert len(stored.trips.log) == 2


def test_a_large_pack_is_not_joined_in_memory(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "AT_ONCE", 500)
    assert stored.repository().repack().after == 1
    assert any(each.startswith("create project/incoming/") for each in stored.trips.log)
    assert stored.storage.list_directory("project/incoming") == []
    check_whole(PackRepository(Far(stored.storage), "project"), stored.history)


OPERATIONS: dict[str, Callable[[Stored], object]] = {
    "open": Stored.snapshot,
    "push one revision": lambda stored: push(
        stored.repository(), stored.history, [stored.line[9]], {MAIN: stored.line[9]}
    ),
    "push a new branch": lambda stored: push(
        stored.repository(), stored.history, [stored.line[9]], {b"refs/heads/new": stored.line[9]}
    ),
    "push 1 MB": push_much,
    "new repository": lambda stored: push(
        PackRepository(stored.trips, "other"), stored.history, stored.line[:3], {MAIN: stored.line[2]}
    ),
    "pull one revision": lambda stored: pull(stored, 1),
    "clone": lambda stored: pull(stored, 9),
    "repack": lambda stored: stored.repository().repack(),
    "look for leftovers": lambda stored: stored.repository().collect_garbage_files(),
    "delete what was joined a day ago": joined_a_day_ago,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_takes_so_many_trips(stored: Stored, name: str) -> None:
    OPERATIONS[name](stored)
    assert len(stored.trips.log) <= BUDGETS[f"store: {name}"], "\n".join(stored.trips.log)


def test_every_operation_has_a_budget() -> None:
    assert {f"store: {name}" for name in OPERATIONS} == BUDGETS.keys()


def test_a_checkpoint_that_moves_little_is_made_unasked(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change; another waits until it is asked for."""
    monkeypatch.setattr("smartserver.store.checkpoint.FEW", 8)
    repository = stored.repository()
    repository.snapshot()
    size = repository.log.since.moved
    monkeypatch.setattr("smartserver.store.upkeep.MOST_OVER_LINK", size - 1)
    repository.save_log()
    stored.push([stored.line[9]])
    assert stored.repository().snapshot().state.version == 9
    repository.snapshot()
    repository.save_log()
    assert stored.storage.list_directory("project/checkpoints") == []
    monkeypatch.setattr("smartserver.store.upkeep.MOST_OVER_LINK", 2 * size)
    repository.save_log()
    assert len(stored.storage.list_directory("project/checkpoints")) == 1
    check_whole(PackRepository(Far(stored.storage), "project"), stored.history)


def test_what_is_larger_than_is_asked_for_at_once(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for in several goes, and records are read one by one."""
    monkeypatch.setattr("smartserver.store.remote.AT_ONCE", 500)
    monkeypatch.setattr("smartserver.store.remote.NEAR", 100)
    assert pull(stored, 9) == stored.history.body(stored.line[:9])
    check_whole(PackRepository(Far(stored.storage), "project"), stored.history)


def test_a_second_request_reads_no_index_again(stored: Stored) -> None:
    repository = stored.repository()
    repository.snapshot()
    del stored.trips.log[:]
    stored.push([stored.line[9]])
    repository.snapshot()
    assert [each.count(".idx") for each in stored.trips.log] == [0, 1]  # It is read with its pack.
    del stored.trips.log[:]
    repository.snapshot()
    assert stored.trips.log == [", ".join(f"GetPublished project/log/{number:010}" for number in (11, 10, 9))]


def damaged(stored: Stored, how: Callable[[bytes], bytes], suffix: str = ".pack") -> str:
    """The last pack's file, damaged; where it lies."""
    name = stored.snapshot().state.packs[-1].name.hex()
    path = f"project/packs/{name}{suffix}"
    content = stored.storage.get(path)
    stored.storage.delete(path)
    stored.storage.put(path, [how(content)])
    return path


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (lambda content: content[: content.rindex(b"hpss-trl") - 1], "ends before byte"),
        (lambda content: content[:40], "ends before byte"),
        (lambda content: b"xxxxxxxx" + content[8:], "begins with"),
        (lambda content: content.replace(b"object", b"OBJECT", 1), "its kinds of records are"),
    ],
)
def test_a_pack_that_is_another_is_named(stored: Stored, how: Callable[[bytes], bytes], why: str) -> None:
    path = damaged(stored, how)
    with pytest.raises(CorruptFile, match=why) as raised:
        pull(stored, 1)
    assert f"project/{raised.value.path}" == path
    assert any(why in problem for problem in PackRepository(Far(stored.storage), "project").verify().problems)


def test_a_missing_or_damaged_index_is_made_again(stored: Stored) -> None:
    damaged(stored, lambda content: content[:-1] + bytes((content[-1] ^ 1,)), ".idx")
    entry = stored.snapshot().state.packs[0]
    stored.storage.delete(f"project/{index_path(entry.name)}")
    snapshot = stored.snapshot()
    assert [pack.rebuilt is not None for pack in snapshot.packs] == [True, *[False] * 5, True]
    assert snapshot.read_ranges([(8, 9)]).read(1 << 20) == stored.history.segment(stored.line[8])


def test_ranges_across_near_and_far_packs(stored: Stored) -> None:
    """In the order they were asked for; each is where it says, or an error names it."""
    near = PackRepository(stored.storage, "project").snapshot().packs
    distant = stored.snapshot().packs
    packs = [near[0], distant[1], distant[2], near[0], distant[1]]
    readers: list[PackReader] = [pack.reader for pack in packs]
    assert isinstance(readers[1], RemotePack)
    wanted = [(reader, reader.first + number, 20) for number, reader in enumerate(readers)]
    expected = [reader.read(offset, size) for reader, offset, size in wanted]
    assert read_across(wanted) == expected
    assert read_across([]) == []
    with pytest.raises(CorruptFile, match="outside of the segments"):
        read_across([(readers[1], 0, 20)])
