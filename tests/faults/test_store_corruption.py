"""Every byte of a small repository flipped in turn: the damage is named, and never returned as an answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from builders import MAIN, Clock, History, Repeatable, push, refs_of, upload
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile, Unsupported
from smartserver.records.model import Segment
from smartserver.records.segment import decode_segment
from smartserver.store.checkpoint import make_checkpoint
from smartserver.store.format import CHECKPOINTS, FORMAT, LOG, PACKS
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.record import PackEntry
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.verify import NO_INDEX
from transports.errors import CodedError


class Sample:
    """Two packs, the second based on the first; one of its records also has a base in the same pack."""

    def __init__(self) -> None:
        self.history = History()
        self.storage = MemoryTransport()
        self.line = self.history.line(3)
        repository = PackRepository(self.storage, clock=Clock(), randomness=Repeatable())
        self.states: list[dict[bytes, bytes]] = []
        """The refs after each push."""
        tags = b"refs/tags/1", b"refs/tags/2"
        for revisions, refs in (
            (self.line[:1], {MAIN: self.line[0]}),
            (self.line[1:], {MAIN: self.line[2]}),
            *[([], {tag: self.line[0]}) for tag in tags],
        ):
            push(repository, self.history, revisions, refs)
            self.states.append(refs_of(repository))
            if len(self.states) in (2, 3):
                make_checkpoint(self.storage, repository.log.look().state, repository.randomness)
        self.log = [
            FORMAT,
            *[f"{folder}/{name}" for folder in (LOG, CHECKPOINTS) for name in self.storage.list_directory(folder)],
        ]
        snapshot = repository.snapshot()
        self.packs: list[PackEntry] = [pack.entry for pack in snapshot.packs]
        self.segments: dict[int, list[tuple[int, Segment]]] = {
            number: [
                (offset, decode_segment(content, 0, snapshot.state.kinds)) for offset, content in pack.reader.segments()
            ]
            for number, pack in enumerate(snapshot.packs)
        }

    def flipped(self, path: str) -> Iterator[tuple[int, MemoryTransport]]:
        """Yield the repository with each byte of a file wrong, one after the other."""
        content = self.storage.get(path)
        for at in range(len(content)):
            wrong = bytearray(content)
            wrong[at] ^= 1 << at % 8
            self.storage.delete(path)
            self.storage.put(path, [bytes(wrong)])
            yield at, self.storage
        self.storage.delete(path)
        self.storage.put(path, [content])

    def owner(self, number: int, at: int) -> str:
        """Return the hex key of the record whose frame has byte `at` of a pack, or the revision of the segment."""
        for offset, segment in self.segments[number]:
            if not offset <= at < offset + segment.length:
                continue
            frame_at = offset + segment.frames_at
            for entry in segment.entries:
                if frame_at <= at < frame_at + entry.frame_length:
                    return entry.key.hex()
                frame_at += entry.frame_length
            return ""
        return ""


@pytest.fixture
def sample() -> Sample:
    return Sample()


def check_reads(sample: Sample, storage: MemoryTransport) -> int:
    """Check that each record reads as it was pushed or not at all, and return the number that read."""
    repository = PackRepository(storage, clock=Clock())
    try:
        snapshot: Snapshot = repository.snapshot()
    except CodedError:
        return 0
    read = 0
    for key, record in sample.history.objects.items():
        try:
            found = snapshot.lookup(0, key)
        except CodedError:
            continue
        assert found == record
        read += 1
    return read


def check_pull(sample: Sample, storage: MemoryTransport) -> bool:
    """Check that a pull of damaged storage gives the pushed revisions (False) or fails at either end (True)."""
    transaction = PackRepository(storage, clock=Clock()).begin()
    try:
        plan = transaction.plan_pull([sample.line[2]], [])
        body = transaction.open_body(plan).read(1 << 20)
        sent = upload(PackRepository(MemoryTransport(), randomness=Repeatable()), body, plan.segments)
    except CodedError:
        return True
    assert [announced.revision for announced in sent.graph() or ()] == sample.line
    return False


def test_every_byte_of_a_pack(sample: Sample) -> None:
    number = 1
    entry = sample.packs[number]
    path = pack_path(entry.name)
    refused = harmless = 0
    for at, storage in sample.flipped(path):
        problems = PackRepository(storage, clock=Clock()).verify().problems
        assert problems, f"byte {at} of {entry.length}"
        assert any(path in problem and "at byte" in problem for problem in problems), problems
        key = sample.owner(number, at)
        read = check_reads(sample, storage)
        if not any(path in problem and key in problem for problem in problems):
            # A bit a decoder does not look at: the pack's hash tells, and every record is what it was.
            harmless += 1
            assert read == len(sample.history.objects), (at, problems)
        refused += check_pull(sample, storage)
    first, last = sample.segments[number][0][0], entry.length - 16
    assert refused + harmless >= last - first
    assert harmless < (last - first) // 20
    assert PackRepository(sample.storage, clock=Clock()).verify().problems == ()


def test_every_byte_of_an_index(sample: Sample) -> None:
    """An index is a cache: a reader rebuilds it from the pack, and loses nothing."""
    path = index_path(sample.packs[1].name)
    for at, storage in sample.flipped(path):
        repository = PackRepository(storage, clock=Clock())
        assert repository.verify().problems == (f"{path}: {NO_INDEX}",), at
        snapshot = repository.snapshot()
        for key, record in sample.history.objects.items():
            assert snapshot.lookup(0, key) == record
        assert not check_pull(sample, storage)


@pytest.mark.parametrize("number", range(8))
def test_every_byte_of_the_log(sample: Sample, number: int) -> None:
    """Damage is named whether or not it is read today. A reader never sees a state that the log never had. Where it
    sees an older one, every change is refused: a change would bury the damage."""
    path = sample.log[number]
    for at, storage in sample.flipped(path):
        repository = PackRepository(storage, clock=Clock(), randomness=Repeatable(at))
        try:
            problems: tuple[str, ...] = repository.verify().problems
        except Unsupported as wrong:
            problems = (str(wrong),)
        assert any(path in problem or f"'{path}'" in problem for problem in problems), (at, problems)
        found = None
        with contextlib.suppress(CorruptFile, Unsupported):
            found = refs_of(repository)
            assert found in sample.states, at
        if found != sample.states[-1]:
            before = storage.list_directory(LOG)
            with pytest.raises(CodedError):
                push(repository, sample.history, [], {MAIN: sample.line[0]})
            assert storage.list_directory(LOG) == before
    assert PackRepository(sample.storage, clock=Clock()).verify().problems == ()


def test_a_push_on_a_damaged_base_is_refused_by_the_damages_name(sample: Sample) -> None:
    """The server blames its own damage and not the client, and builds nothing on it."""
    entry = sample.packs[1]
    offset, segment = sample.segments[1][0]
    path = pack_path(entry.name)
    content = bytearray(sample.storage.get(path))
    content[offset + segment.frames_at : offset + segment.length] = bytes(segment.length - segment.frames_at)
    sample.storage.delete(path)
    sample.storage.put(path, [bytes(content)])
    repository = PackRepository(sample.storage, clock=Clock(), randomness=Repeatable(1))
    (child,) = sample.history.line(1, sample.line[2])
    with pytest.raises(CorruptFile) as caught:
        upload(repository, sample.history.body([child]), 1)
    assert caught.value.path == path
    assert len(sample.storage.list_directory(PACKS)) == 4
