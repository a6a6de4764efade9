"""store.open_pack, store.pack, store.blocks: a pack that is gone, moved, another or damaged; an index that is read in
blocks, and made again from its pack where it is damaged, whenever that is met."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, Stepwise, check_whole, locate, push
from changes import push_each
from counting import Counting
from memory_transport import MemoryTransport
from pack_samples import KINDS, Revision, Stored, every_record, history, note, opened, packed, stored

from smartserver.errors import CorruptFile, RepositoryChanged
from smartserver.meters import BLOCK_CACHE
from smartserver.records.model import Parent
from smartserver.store import blocks, remote
from smartserver.store.blocks import Blocks, seal
from smartserver.store.caches import SharedCache
from smartserver.store.format import PACKS
from smartserver.store.open_pack import SegmentReader, index_path, pack_path
from smartserver.store.pack import MAGIC, MovedPack, PackReader, encode_header
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.upkeep import KEPT
from transports.base import BytesFile, ReadFile, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import NoSuchFile
from transports.local import LocalTransport


def test_a_file_is_open_as_long_as_somebody_reads_from_it() -> None:
    made = stored([2])
    files: list[weakref.ref[ReadFile]] = []

    class Watching(PassingTransport):
        def open_read(self, path: str) -> ReadFile:
            file = super().open_read(path)
            if path.endswith(".pack"):
                files.append(weakref.ref(file))
            return file

    transport = Watching(made.transport)
    before = Snapshot.open(transport, made.state())
    reader = before.read_ranges([(0, 2)])
    assert reader.read(10)
    after = Snapshot.open(transport, made.state(), before)
    del before, after
    assert [file() is not None for file in files] == [True]  # A body half sent keeps its packs.
    assert reader.read(1 << 20)
    assert reader.left == 0
    del reader
    assert [file() for file in files] == [None]  # Without a garbage collection.


def test_a_reader_that_is_all_there_is_keeps_its_files_open(tmp_path: Path) -> None:
    """Whatever takes the numbers of descriptors that are closed meanwhile: its bytes are never sent."""
    made = Stored(LocalTransport(tmp_path))
    revisions = history(12)
    for count in (4, 3, 5):
        made.add(revisions[:count])
        del revisions[:count]
    reader = opened(made).read_ranges([(0, 12)])  # The snapshot is gone, as when packs were joined.
    (tmp_path / "other").write_bytes(b"x" * (1 << 16))
    others, pieces = [], []
    while piece := reader.read(1000):
        others.append((tmp_path / "other").open("rb"))
        pieces.append(piece)
    for other in others:
        other.close()
    assert b"".join(pieces) == b"".join(revision.segment() for revision in made.revisions)


def test_a_pack_that_is_gone_is_for_the_caller_to_meet() -> None:
    made = stored([2, 2])
    snapshot = opened(made)
    made.transport.delete(pack_path(made.entries[1].name))
    assert snapshot.read_ranges([(0, 1)]).read(1 << 20)
    with pytest.raises(NoSuchFile):
        snapshot.read_ranges([(2, 3)]).read(1 << 20)
    with pytest.raises(NoSuchFile):
        snapshot.record(locate(snapshot, 1, b"note-3")[0])
    assert opened(made).graph.count == 4
    made.transport.delete(index_path(made.entries[1].name))
    with pytest.raises(NoSuchFile):
        opened(made)


@pytest.mark.parametrize("damage", ["gone", "short", "long", "another pack's", "another file's"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_or_damaged_index_is_made_again(damage: str, number: int) -> None:
    made = stored([3, 2, 4])
    path = index_path(made.entries[number].name)
    content = made.transport.get(path)
    made.transport.delete(path)
    wrong = {
        "short": content[:-1],
        "long": content + b"\0",
        "another pack's": made.transport.get(index_path(made.entries[number - 1].name)),
        "another file's": b"x" * len(content),
    }
    if damage != "gone":
        made.transport.put(path, [wrong[damage]])
    snapshot = opened(made)
    assert [pack.rebuilt for pack in snapshot.packs] == [content if at == number else None for at in range(3)]
    for _, record in every_record(made):
        assert snapshot.record(locate(snapshot, record.kind, record.key)[0]) == record


def test_a_damaged_pack_without_its_index_is_named() -> None:
    made = stored([2])
    path = pack_path(made.entries[0].name)
    made.transport.delete(index_path(made.entries[0].name))
    content = bytearray(made.transport.get(path))
    for at in range(0, len(content), 7):
        content[at] ^= 0x24
        made.transport.delete(path)
        made.transport.put(path, (bytes(content),))
        with pytest.raises(CorruptFile, match=rf"{path} is damaged at byte \d+"):
            opened(made)
        content[at] ^= 0x24


def test_another_pack_of_the_same_length_is_not_the_one_named() -> None:
    made, other = stored([2]), Stored()
    first, second = made.revisions
    other.add(
        [
            Revision(b"Revision-0000", (), first.records),
            Revision(second.id, (Parent(b"Revision-0000"),), second.records),
        ]
    )
    assert other.entries[0].length == made.entries[0].length
    for path in (pack_path(made.entries[0].name), index_path(made.entries[0].name)):
        made.transport.delete(path)
    made.transport.put(pack_path(made.entries[0].name), (other.transport.get(pack_path(other.entries[0].name)),))
    with pytest.raises(CorruptFile, match=f"expected {made.entries[0].hash.hex()}"):
        opened(made)


def test_a_pack_of_other_kinds_is_refused() -> None:
    made = stored([2])
    kinds = (*KINDS[:2], KINDS[1])
    snapshot = Snapshot.open(made.transport, dataclasses.replace(made.state(), kinds=kinds))
    with pytest.raises(CorruptFile, match="its kinds of records are"):
        snapshot.read_ranges([(0, 1)]).read(1 << 20)


def test_ranges_are_read_as_they_lie() -> None:
    made = stored([3, 2, 4])
    snapshot = opened(made)
    segments = [revision.segment() for revision in made.revisions]
    for ranges in ([(0, 9)], [(2, 3)], [(2, 6)], [(0, 1), (4, 5), (8, 9)], [(1, 4), (6, 9)], []):
        expected = b"".join(segments[ordinal] for start, stop in ranges for ordinal in range(start, stop))
        assert snapshot.size(ranges) == len(expected)
        for size in (1, 7, 1000, 1 << 20):
            reader = snapshot.read_ranges(ranges)
            assert isinstance(reader, SegmentReader)
            read = []
            while chunk := reader.read(size):
                assert len(chunk) == size or reader.left == 0
                read.append(chunk)
            assert b"".join(read) == expected
    assert [snapshot.read_ranges([(ordinal, ordinal + 1)]).read(1 << 20) for ordinal in range(9)] == segments
    with pytest.raises(IndexError):
        snapshot.size([(8, 10)])


def content_of(count: int) -> bytes:
    reader = packed(revision.segment() for revision in history(count))
    return b"".join([reader.header, *reader.chunks(), reader.trailer()])


def reader_of(content: bytes, length: int | None = None) -> PackReader:
    return PackReader(BytesFile(content), len(content) if length is None else length, "packs/1.pack")


def test_a_shorter_file_than_the_root_says_is_refused() -> None:
    content = content_of(2)
    length = len(content) + 1
    with pytest.raises(CorruptFile, match=rf"packs/1.pack .* {len(content)} bytes, expected {length}"):
        reader_of(content, length)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "0 bytes, a pack's header has 12 or more"),
        (b"PK\3\4" + bytes(40), "begins with"),
        (MAGIC + b"\2" + bytes(40), "version 2 flags 0"),
        (MAGIC + b"\1\1" + bytes(40), "version 1 flags 1"),
        (MAGIC + b"\1\0\x10\0\5" + bytes(20), "the list of kinds"),
        (encode_header(KINDS)[:20] + bytes(16), "the list of kinds"),
        (encode_header(KINDS).replace(b"object", b"obj\xff\xfft") + bytes(16), "the list of kinds"),
        (MAGIC + b"\1\0\x0e\0\0" + bytes(20), "the header states 14 bytes, but ends after 13"),
    ],
)
def test_what_is_no_pack_of_this_release_is_named(content: bytes, why: str) -> None:
    with pytest.raises(CorruptFile, match=why):
        reader_of(content)


def test_reading_outside_of_the_segments_is_refused() -> None:
    content = content_of(3)
    reader = reader_of(content)
    for offset, size in ((0, 4), (reader.first - 1, 2), (reader.end - 1, 2), (reader.end, 1), (reader.first, -1)):
        with pytest.raises(CorruptFile, match="outside of the segments"):
            reader.read(offset, size)


def test_a_file_that_became_shorter_is_named() -> None:
    content = content_of(3)

    class Shrunk(BytesFile):
        length = len(content)

        def read_at(self, offset: int, size: int) -> bytes:
            return content[: self.length][offset : offset + size]

    file = Shrunk(content)
    reader = PackReader(file, len(content), "packs/1.pack")
    file.length = 100
    with pytest.raises(
        CorruptFile, match=r"packs/1.pack is damaged at byte 90: 10 bytes, expected 20: the file became shorter"
    ):
        reader.read(90, 20)
    with pytest.raises(CorruptFile):
        list(reader.segments())


def test_bytes_after_the_last_segment_are_noticed() -> None:
    with pytest.raises(CorruptFile, match="segment"):
        list(packed([b"\x05abc"]).segments())


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
