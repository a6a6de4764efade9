"""store.open_pack, store.remote: packs are joined, and deleted a day later, while something long reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, Stepwise, locate, push
from changes import push_each
from memory_transport import MemoryTransport
from pack_samples import Stored, history, note, opened, stored

from smartserver.errors import RepositoryChanged
from smartserver.store import remote
from smartserver.store.format import PACKS
from smartserver.store.open_pack import SegmentReader, pack_path
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.upkeep import KEPT
from transports.base import Transport
from transports.errors import NoSuchFile
from transports.local import LocalTransport


class Busy:
    """A repository of several packs, whose packs are joined and deleted on demand."""

    def __init__(self, storage: Transport, through: Transport, clock: Clock) -> None:
        """`through`: what readers reach `storage` by."""
        self.clock = clock
        self.storage = storage
        self.history = History()
        self.writer = PackRepository(through, clock=clock, randomness=Repeatable())
        self.readers = PackRepository(through, clock=clock, randomness=Repeatable(1))
        self.line = self.history.line(6)
        push(self.writer, self.history, self.line[:2], {MAIN: self.line[1]})
        push_each(self.writer, self.history, self.line[2:])

    def join_and_sweep(self) -> None:
        """Join all packs and let a day pass. What was joined is gone then."""
        before = set(self.storage.list_directory(PACKS))
        self.writer.repack()
        self.clock.now += KEPT + 1
        self.writer.collect_garbage_files()
        left = set(self.storage.list_directory(PACKS))
        assert not before & left
        assert len(left) == 2

    def whole(self) -> bytes:
        """All segments as they lie."""
        snapshot = self.writer.snapshot()
        reader = snapshot.read_ranges([(0, snapshot.graph.count)])
        return reader.read(reader.left)


@pytest.fixture(params=["memory", "local", "far"])
def busy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr(remote, "AT_ONCE", 300)
    monkeypatch.setattr(remote, "SMALL", 0)  # What was read with the indexes is there whatever becomes of the file.
    clock = Clock()
    storage = LocalTransport(str(tmp_path)) if request.param == "local" else MemoryTransport(clock)
    return Busy(storage, Far(storage) if request.param == "far" else storage, clock)


def begin(busy: Busy) -> tuple[Snapshot, SegmentReader]:
    snapshot = busy.readers.snapshot()
    assert len(snapshot.packs) == 5
    return snapshot, snapshot.read_ranges([(0, snapshot.graph.count)])


@pytest.mark.parametrize("first", [0, 1, 100, 1000])
def test_a_reader_goes_on_where_the_segments_lie_now(busy: Busy, first: int) -> None:
    expected = busy.whole()
    _, reader = begin(busy)
    assert len(expected) > 2 * first
    pieces = [reader.read(first)]
    busy.join_and_sweep()
    while piece := reader.read(97):
        pieces.append(piece)
    assert b"".join(pieces) == expected


def test_it_goes_on_after_several_sweeps_and_pushes(busy: Busy) -> None:
    expected = busy.whole()
    snapshot, reader = begin(busy)
    pieces = []
    tip = busy.line[-1]
    while piece := reader.read(len(expected) // 4):
        pieces.append(piece)
        line = busy.history.line(2, tip, f"more {len(pieces)}")
        push_each(busy.writer, busy.history, line)
        tip = line[-1]
        busy.join_and_sweep()
    assert b"".join(pieces) == expected
    assert snapshot.read_ranges([(0, snapshot.graph.count)]).read(len(expected)) == expected


def test_a_snapshot_is_read_after_its_packs_are_deleted(busy: Busy) -> None:
    snapshot, _ = begin(busy)
    del _
    busy.join_and_sweep()
    for revision in busy.line:
        for key, _path in busy.history.introduced[revision]:
            for location in locate(snapshot, 0, key):
                assert snapshot.record(location).key == key
        ordinal = snapshot.ordinal(revision)
        assert ordinal is not None
        assert snapshot.read_ranges([(ordinal, ordinal + 1)]).read(1 << 20)


def test_a_reader_outlives_the_repository_it_began_in(busy: Busy) -> None:
    """A server keeps only so many repositories open."""
    expected = busy.whole()
    _, reader = begin(busy)
    busy.join_and_sweep()
    del busy.readers, _
    assert reader.read(1 << 20) == expected


class Sweeping(Stepwise):
    """Joins and sweeps packs before the second one is opened."""

    def __init__(self, inner: Transport, *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self.opened: list[str] = []
        self.sweep: Callable[[], None] = lambda: None

    def before(self, call: str, path: str) -> None:
        if call == "open_read" and path.endswith(".pack") and path not in self.opened:
            self.opened.append(path)
            if len(self.opened) == 2:
                self.sweep()


@pytest.mark.parametrize("linked", [False, True])
def test_verification_goes_on_where_the_segments_lie_now(linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SMALL", 0)
    clock = Clock()
    storage = MemoryTransport(clock)
    through = Sweeping(storage)
    busy = Busy(storage, storage, clock)
    through.sweep = busy.join_and_sweep
    report = PackRepository(Far(through) if linked else through).verify()
    assert len(through.opened) > 2
    assert report.problems == ()
    assert (report.segments, report.packs) == (6, 5)


@pytest.mark.parametrize("remade", [True, False])
def test_another_repository_is_not_read_in_its_place(busy: Busy, remade: bool) -> None:
    _, reader = begin(busy)
    del _
    busy.writer.delete(b"d" * 16, 0, "user")
    busy.clock.now += KEPT + 1
    busy.writer.collect_garbage_files()
    if remade:
        push(busy.writer, busy.history, busy.line, {MAIN: busy.line[-1]})
    with pytest.raises(RepositoryChanged, match=r"packs/\w+\.pack is gone: .*; try again") as raised:
        reader.read(1 << 20)
    assert raised.value.retryable


def test_a_pack_that_the_root_names_is_missing(busy: Busy) -> None:
    snapshot, reader = begin(busy)
    path = pack_path(snapshot.packs[2].entry.name)
    busy.storage.delete(path)
    with pytest.raises(NoSuchFile, match=path):
        reader.read(1 << 20)


def test_other_segments_under_the_same_ids_are_not_read() -> None:
    """A backup was put back, and what it lacked was pushed again, encoded in another way."""
    made = stored([2, 3])
    index = opened(made).packs[1].index
    revisions = history(5)
    for changed, found in ((False, True), (True, False)):
        other = Stored()
        if changed:
            revisions[3].records = [*revisions[3].records, (note(b"another", b"another\n"), None)]
        other.add(revisions)
        place = opened(other).place_of(index)
        assert (place is not None) == found
        if place is not None:
            assert place[0] == other.entries[0]
            assert place[1] == opened(other).packs[0].index.segment_offsets[2] - index.segment_offsets[0]
    fewer = Stored()
    fewer.add(history(4))
    assert opened(fewer).place_of(index) is None
    assert opened(stored([1])).place_of(index) is None
