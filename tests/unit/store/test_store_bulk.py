"""store.bulk: segments as they lie as one stream, of which every piece that came is worth its segments."""

from __future__ import annotations

import pytest
from builders import MAIN, History, push

from smartserver.records.bulk import BulkDecoder, read_bulk
from smartserver.store.bulk import BulkReader
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from transports.memory import MemoryTransport

HISTORY = History()
LINE = HISTORY.line(30)
SEGMENTS = [HISTORY.segment(each) for each in LINE]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    repository = PackRepository(MemoryTransport(), "project")
    push(repository, HISTORY, LINE[:9], {MAIN: LINE[8]})
    push(repository, HISTORY, LINE[9:], {MAIN: LINE[29]})
    return repository.snapshot()


@pytest.mark.parametrize("size", [1, 100, 1000, 1 << 20])
def test_what_is_read_is_the_segments(snapshot: Snapshot, size: int) -> None:
    reader = BulkReader(snapshot.read_ranges([(0, 5), (8, 30)]))
    chunks = []
    while chunk := reader.read(size):
        assert len(chunk) <= size
        chunks.append(chunk)
    assert reader.read(size) == b""
    assert (reader.segments, reader.size) == (27, sum(map(len, chunks)))
    assert b"".join(read_bulk(chunks)) == b"".join([*SEGMENTS[:5], *SEGMENTS[8:]])


def test_it_is_shorter(snapshot: Snapshot) -> None:
    reader = BulkReader(snapshot.read_ranges([(0, 30)]))
    while reader.read(1 << 20):
        pass
    assert reader.size < 0.8 * sum(map(len, SEGMENTS))


def test_each_piece_is_whole_when_it_came(snapshot: Snapshot) -> None:
    """A link that breaks takes nothing of what was read of the store before."""
    size = 4000
    reader, decoder = BulkReader(snapshot.read_ranges([(0, 30)])), BulkDecoder()
    came = 0
    while chunk := reader.read(size):
        came += sum(map(len, decoder.feed(chunk)))
        assert came % size == 0 or came == sum(map(len, SEGMENTS))
    decoder.finish()
    assert came > size
