from __future__ import annotations

import pytest
from builders import KINDS, History, Lockless, Repeatable

from smartserver.records.segment import decode_segment
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import Row
from smartserver.store.index_build import nowhere
from smartserver.store.quarantine import LOCK, DraftPack, Quarantine, sweep
from transports.base import Transport
from transports.decorators.faulty import FaultyTransport
from transports.errors import NoSuchFile, TransportFailed
from transports.memory import MemoryTransport


def never(_modified: float) -> bool:
    return False


def always(_modified: float) -> bool:
    return True


@pytest.fixture
def folder() -> MemoryTransport:
    made = MemoryTransport()
    made.make_directory(INCOMING)
    made.make_directory(PACKS)
    return made


def written(folder: Transport, place: Quarantine) -> DraftPack:
    history = History()
    (tip,) = history.line(1)
    content = history.segment(tip)
    draft = DraftPack(place, KINDS, nowhere)
    segment = decode_segment(content, 0, KINDS)
    draft.add(content, segment, [Row()] * len(segment.entries))
    return draft


def test_a_pack_is_read_back_sealed_and_published(folder: MemoryTransport) -> None:
    place = Quarantine(folder, "", b"request", Repeatable())
    draft = written(folder, place)
    start = draft.length - 10
    assert len(draft.read(start, 10)) == 10
    with pytest.raises(TransportFailed, match="10 bytes at"):
        draft.read(start, 11)
    entry = draft.seal()
    draft.close()
    assert entry.name == place.name
    assert folder.stat(place.pack_path).size == entry.length
    assert folder.get(place.pack_path)[-16:] == entry.hash
    assert folder.get(place.index_path)[-16:] == entry.index_hash
    place.publish("")
    place.publish("")
    place.leave()
    assert folder.list_directory(PACKS) == [f"{entry.name.hex()}.idx", f"{entry.name.hex()}.pack"]
    assert folder.list_directory(INCOMING) == []


def test_segments_are_written_many_at_once(folder: MemoryTransport) -> None:
    """Most have some hundred bytes. What was not written yet is there to be read, and in the pack when it is sealed."""
    history = History()
    place = Quarantine(folder, "", b"request", Repeatable())
    draft = DraftPack(place, KINDS, nowhere)
    begun = folder.stat(place.pack_path).size
    size = draft.length
    contents: list[bytes] = []
    for revision in history.line(5):
        content = history.segment(revision)
        segment = decode_segment(content, 0, KINDS)
        draft.add(content, segment, [Row()] * len(segment.entries))
        contents.append(content)
        if len(contents) < 4:
            assert folder.stat(place.pack_path).size == begun
        if len(contents) == 4:
            assert draft.read(size, sum(map(len, contents))) == b"".join(contents)
        assert draft.length == size + sum(map(len, contents))
    entry = draft.seal()
    assert entry.length == draft.length
    assert folder.get(place.pack_path)[size:-16] == b"".join(contents)


def test_what_is_published_outlives_a_crash(folder: MemoryTransport) -> None:
    folder.sync_directory("")
    place = Quarantine(folder, "", b"request", Repeatable())
    entry = written(folder, place).seal()
    place.publish("")
    found = folder.crash()
    assert len(found.get(f"{PACKS}/{entry.name.hex()}.pack")) == entry.length
    assert len(found.get(f"{PACKS}/{entry.name.hex()}.idx")) == entry.index_length


@pytest.mark.parametrize("published", [False, True])
def test_discarding_leaves_nothing(folder: MemoryTransport, published: bool) -> None:
    place = Quarantine(folder, "", b"request", Repeatable())
    draft = written(folder, place)
    if published:
        draft.seal()
        place.publish("")
    draft.close()
    place.discard()
    place.discard()
    assert folder.list_directory(PACKS) == folder.list_directory(INCOMING) == []


def test_discarding_half_a_publication(folder: MemoryTransport) -> None:
    faulty = FaultyTransport(folder, mode="fail")
    place = Quarantine(faulty, "", b"request", Repeatable())
    written(faulty, place).seal()
    place.above = FaultyTransport(folder, fail_at=2, mode="fail")
    with pytest.raises(TransportFailed):
        place.publish("")
    place.discard()
    assert folder.list_directory(PACKS) == folder.list_directory(INCOMING) == []


def test_without_a_repository(folder: MemoryTransport) -> None:
    with pytest.raises(NoSuchFile):
        Quarantine(folder, "elsewhere", b"request", Repeatable())


def test_equal_requests_have_quarantines_of_their_own(folder: MemoryTransport) -> None:
    randomness = Repeatable()
    first, second = (Quarantine(folder, "", b"request", randomness) for _ in range(2))
    assert first.path != second.path
    assert first.path.startswith(f"{INCOMING}/{b'request'.hex()}-")


def test_a_sweep_leaves_the_living_alone(folder: MemoryTransport) -> None:
    randomness = Repeatable()
    live, dead = (Quarantine(folder, "", b"request", randomness) for _ in range(2))
    written(folder, live)
    written(folder, dead).close()
    dead._locked.close()  # What the system does for a process that ends.
    assert sweep(folder, folder.list_directory(INCOMING), always) == 1
    assert folder.list_directory(INCOMING) == [live.path.partition("/")[2]]
    assert folder.exists(live.pack_path)
    live.discard()
    assert sweep(folder, folder.list_directory(INCOMING), always) == 0


def test_a_sweep_takes_a_folder_that_was_never_locked(folder: MemoryTransport) -> None:
    folder.make_directory(f"{INCOMING}/half-made")
    assert sweep(folder, folder.list_directory(INCOMING), never) == 1
    assert folder.list_directory(INCOMING) == []


def test_a_sweep_survives_what_it_does_not_know(folder: MemoryTransport) -> None:
    folder.put(f"{INCOMING}/a-file", [b"x"])
    assert sweep(folder, folder.list_directory(INCOMING), always) == 0


class SweepingTransport(FaultyTransport):
    """Another process sweeps right after each of the first `sweeps` folders is made."""

    sweeps = 0

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        if self.sweeps:
            self.sweeps -= 1
            sweep(self.inner, self.inner.list_directory(INCOMING), never)


@pytest.mark.parametrize(("sweeps", "wins"), [(1, True), (7, True), (8, False)])
def test_a_sweep_between_making_and_locking(folder: MemoryTransport, sweeps: int, wins: bool) -> None:
    racing = SweepingTransport(folder)
    racing.sweeps = sweeps
    if not wins:
        with pytest.raises(TransportFailed, match="swept away"):
            Quarantine(racing, "", b"request", Repeatable())
        return
    place = Quarantine(racing, "", b"request", Repeatable())
    assert folder.list_directory(place.path) == [LOCK]
    assert sweep(folder, folder.list_directory(INCOMING), always) == 0
    place.leave()
    assert folder.list_directory(INCOMING) == []


def test_in_a_folder_repository_age_tells(folder: MemoryTransport) -> None:
    """Its writer may be on a store that locks no file, and who sweeps on one that does."""
    place = Quarantine(folder, "", b"request", Repeatable(), by_age=True)
    written(folder, place).close()
    assert folder.list_directory(place.path) == [f"{place.name.hex()}.pack"]
    assert sweep(folder, folder.list_directory(INCOMING), never, by_age=True) == 0
    assert folder.exists(place.path)
    assert sweep(folder, folder.list_directory(INCOMING), always, by_age=True) == 1
    assert not folder.exists(place.path)
    Quarantine(folder, "", b"request", Repeatable(), by_age=True).leave()
    assert folder.list_directory(INCOMING) == []


@pytest.mark.parametrize("large", [False, True])
def test_behind_a_link_a_small_pack_is_held_until_it_is_published(
    folder: MemoryTransport, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pack and index as with a folder of its own, which a large one has."""
    monkeypatch.setattr("smartserver.store.far.AT_ONCE", 10 if large else 10_000)
    near = Quarantine(folder, "", b"request", Repeatable())
    written(folder, near).seal()
    far = Quarantine(Lockless(folder), "", b"request", Repeatable(2), by_age=True)
    draft = written(Lockless(folder), far)
    assert (far.path != "") is large
    assert draft.read(draft.length - 10, 10) == folder.get(near.pack_path)[-26:-16]
    with pytest.raises(TransportFailed, match="9 bytes at"):
        draft.read(draft.length - 9, 10)
    entry = draft.seal()
    draft.close()
    pack = far.open_pack()
    assert pack.read_at(0, pack.size()) == folder.get(near.pack_path)
    pack.close()
    assert folder.list_directory(PACKS) == []
    far.publish("")
    far.publish("")
    assert folder.get(far.pack_path) == folder.get(near.pack_path)
    assert folder.get(far.index_path) == folder.get(near.index_path)
    assert entry.hash == folder.get(near.pack_path)[-16:]
    far.discard()
    assert folder.list_directory(PACKS) == []
    assert len(folder.list_directory(INCOMING)) == 1
