"""store.blocks: an index is read in blocks, and a damaged one is made again from its pack, whenever that is met."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push
from counting import Counting
from memory_transport import MemoryTransport
from pack_samples import Stored, every_record, history, opened

from smartserver.errors import CorruptFile, RepositoryChanged
from smartserver.meters import BLOCK_CACHE
from smartserver.store import blocks
from smartserver.store.blocks import Blocks, seal
from smartserver.store.caches import SharedCache
from smartserver.store.open_pack import index_path
from smartserver.store.pack import MovedPack
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.upkeep import KEPT
from transports.local import LocalTransport

SMALL = 64


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> SharedCache[bytes]:
    """Blocks of 64 bytes, and a cache that holds four of them."""
    cache = SharedCache[bytes](4 * SMALL, len, BLOCK_CACHE)
    monkeypatch.setattr(blocks, "BLOCK", SMALL)
    monkeypatch.setattr(blocks, "CACHED", cache)
    return cache


def file_of(body: bytes, damage: Callable[[bytes], bytes] = lambda content: content) -> tuple[MemoryTransport, int]:
    transport = MemoryTransport()
    content = damage(b"".join(seal([body])))
    transport.put("index", [content])
    return transport, len(content)


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, 3 * SMALL, 200])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_read_outside_of_the_body_is_refused(size: int, in_memory: bool) -> None:
    transport, _ = file_of(bytes(size))
    made = Blocks(transport.get("index") if in_memory else transport.open_read("index"), "index")
    for at, wanted in ((0, size + 1), (size - 1, 2), (size, 1), (size + 1, 0), (size + SMALL, 4), (-1, 1), (1, -1)):
        with pytest.raises(
            CorruptFile, match=f"^index is damaged at byte {at}: {wanted} bytes are outside of the {size} "
        ):
            made.read(at, wanted)


def test_a_read_outside_of_a_body_that_was_made_again_is_refused() -> None:
    transport, _ = file_of(bytes(200), lambda content: b"x" + content[1:])
    made = Blocks(transport.open_read("index"), "index")
    made.remake = lambda: b"".join(seal([bytes(200)]))
    assert made.read(0, 8) == bytes(8)
    assert made.remade
    with pytest.raises(CorruptFile, match="outside"):
        made.read(196, 8)


def test_no_length_that_a_file_cannot_have() -> None:
    for size in range(200):
        transport = MemoryTransport()
        transport.put("index", [bytes(size)])
        with pytest.raises(CorruptFile, match="index is damaged at byte"):
            Blocks(transport.open_read("index"), "index")


def test_no_more_is_held_than_the_cache_takes(small: SharedCache[bytes]) -> None:
    body = bytes(1000)
    transport, _ = file_of(body)
    made, counting = Blocks(transport.open_read("index"), "index"), Counting()
    for at in range(0, 1000, 8):
        made.read(at, 8)
        assert small.size <= 4 * SMALL
    assert counting[BLOCK_CACHE.misses] == 16
    assert counting[BLOCK_CACHE.hits] == 125 - 16


def test_the_index_of_another_pack_is_not_taken() -> None:
    transport, _ = file_of(bytes(300), lambda content: b"x" + content[1:])
    made = Blocks(transport.open_read("index"), "index")
    made.remake = lambda: b"".join(seal([bytes(301)]))
    with pytest.raises(CorruptFile, match="the index does not belong to its pack"):
        made.read(0, 8)


def overwritten(path: Path) -> None:
    """In place, as `cp` does, with what another program wrote there."""
    path.write_bytes(b"\xa5" * path.stat().st_size)


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.long
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), overwritten, half, Path.unlink])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_index_that_is_overwritten_while_it_is_read(
    damage: Callable[[Path], object], number: int, tmp_path: Path
) -> None:
    """Between any two lookups; no answer is wrong, and the process lives."""
    made = Stored(LocalTransport(tmp_path))
    revisions = history(60)
    for count in (20, 25, 15):
        made.add(revisions[:count])
        del revisions[:count]
    path = tmp_path / index_path(made.entries[number].name)
    good = path.read_bytes()
    for lookups in (0, 1, 7, 40):
        path.write_bytes(good)
        snapshot = opened(made)
        for done, (revision, record) in enumerate(every_record(made)):
            if done == lookups:
                damage(path)
            location = snapshot.first(record.kind, record.key)
            assert location is not None
            assert snapshot.record(location) == record
            ordinal = snapshot.ordinal(revision.id)
            assert location.ordinal == ordinal
        assert [snapshot.graph.parents(ordinal) for ordinal in (0, 1, 59)] == [(), (0,), (58,)]
        rebuilt = [pack.rebuilt for pack in snapshot.packs]
        expected = good if path.exists() else None
        assert rebuilt == [expected if at == number else None for at in range(3)]


class Served:
    """A repository as a server has it open, and another process that joins its packs."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.folder = folder
        self.history = History()
        self.repository = PackRepository(LocalTransport(folder), clock=self.clock, randomness=Repeatable())
        self.line = self.history.line(40)
        for at in range(0, 40, 10):
            push(self.repository, self.history, self.line[at : at + 10], {MAIN: self.line[at + 9]})

    def damage(self, snapshot: Snapshot) -> None:
        for pack in snapshot.packs:
            overwritten(self.folder / index_path(pack.entry.name))


def test_an_index_that_is_damaged_after_its_pack_was_joined(tmp_path: Path) -> None:
    served = Served(tmp_path)
    snapshot = served.repository.snapshot()
    PackRepository(LocalTransport(tmp_path), clock=served.clock).repack()
    served.damage(snapshot)
    for revision in served.line:
        ordinal = snapshot.ordinal(revision)
        assert ordinal is not None
        assert snapshot.read_ranges([(ordinal, ordinal + 1)]).read(1 << 20)
    assert all(pack.rebuilt for pack in snapshot.packs)


def test_an_older_state_that_is_opened_after_its_packs_were_joined(tmp_path: Path) -> None:
    """A reader that found its pack's bytes in the joined pack is taken over."""
    served = Served(tmp_path)
    before = PackRepository(LocalTransport(tmp_path), clock=served.clock).snapshot()
    other = PackRepository(LocalTransport(tmp_path), clock=served.clock)
    other.repack()
    served.clock.now += KEPT + 1
    other.collect_garbage_files()
    assert before.read_ranges([(0, 1)]).read(1)
    assert isinstance(before.packs[0].reader, MovedPack)
    joined = other.snapshot()
    back = Snapshot.open(other.folder, before.state, before)
    assert back.continues(joined)
    assert joined.continues(before)


def test_an_index_that_is_damaged_after_its_pack_is_gone(tmp_path: Path) -> None:
    served = Served(tmp_path)
    snapshot = served.repository.snapshot()
    other = PackRepository(LocalTransport(tmp_path), clock=served.clock)
    other.repack()
    served.damage(snapshot)
    served.clock.now += KEPT + 1
    other.collect_garbage_files()
    with pytest.raises(RepositoryChanged, match="try again"):
        snapshot.ordinal(served.line[5])
    check_whole(served.repository, served.history)
