"""store.bulk: segments as they lie as one stream, of which every piece that came is worth its segments."""

from __future__ import annotations

import pytest
from builders import MAIN, History, push
from memory_transport import MemoryTransport

from smartserver.records.bulk import BulkDecoder, read_bulk
from smartserver.records.delta import compress, hunks_in, pack_hunks
from smartserver.records.hunks import encode_hunks
from smartserver.records.model import BaseTag, Entry, Kind
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS, encode_segment
from smartserver.store import bulk as store_bulk
from smartserver.store.bulk import BulkReader, expand
from smartserver.store.open_pack import SegmentReader
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot

HISTORY = History()
LINE = HISTORY.line(30)
KINDS = (Kind("text", "sha1-key", True),)
SEGMENTS = [HISTORY.segment(each) for each in LINE]


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    repository = PackRepository(MemoryTransport(), "project")
    push(repository, HISTORY, LINE[:9], {MAIN: LINE[8]})
    push(repository, HISTORY, LINE[9:], {MAIN: LINE[29]})
    return repository.snapshot()


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


BASE = b"".join(b"line %d of a base\n" % n for n in range(300))
HUNKED = BASE.replace(b"line 7 ", b"line seven " * 40)
HUNKED_FRAME = pack_hunks(encode_hunks([(BASE.index(b"line 7 "), BASE.index(b"line 7 ") + 7, b"line seven " * 40)]))
ZSTD_BASE = compress(BASE)
ON_BASE = compress(HUNKED, BASE)


def record(key: bytes, encoded: tuple[int, bytes], length: int, base: bytes = b"") -> tuple[Entry, bytes]:
    encoding, frame = encoded
    tag = BaseTag.FULL_KEY if base else BaseTag.NONE
    return Entry(0, encoding, key, b"m", tag, base, length, len(frame), b""), frame


def whole(*records: tuple[Entry, bytes]) -> bytes:
    return encode_segment(b"revision", (), [entry for entry, _ in records], [frame for _, frame in records], KINDS)


def test_what_needs_no_base_is_expanded() -> None:
    before = whole(
        record(b"a", ZSTD_BASE, len(BASE)),
        record(b"b", HUNKED_FRAME, len(HUNKED), b"a"),
        record(b"c", ON_BASE, len(HUNKED), b"a"),
    )
    assert HUNKED_FRAME[0] == ZSTD_HUNKS
    assert expand(before, KINDS, set()) == whole(
        record(b"a", (STORED, BASE), len(BASE)),
        record(b"b", (HUNKS, hunks_in(*HUNKED_FRAME)), len(HUNKED), b"a"),
        record(b"c", ON_BASE, len(HUNKED), b"a"),
    )


def test_a_large_or_damaged_segment_stays_as_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = whole(record(b"a", (ZSTD, ZSTD_BASE[1][:-1]), len(BASE)))
    assert expand(damaged, KINDS, set()) == damaged
    sound = whole(record(b"a", ZSTD_BASE, len(BASE)), record(b"b", HUNKED_FRAME, len(HUNKED), b"a"))
    for room in (len(sound) - 1, len(BASE) + 10, len(BASE) - 1):
        monkeypatch.setattr(store_bulk, "LARGEST", room)
        assert len(expand(sound, KINDS, set())) <= max(len(sound), room)


def test_what_is_expanded_at_once_has_a_limit(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bulk, "EXPANDED_AT_ONCE", 1)
    reader = BulkReader(snapshot.read_ranges([(0, 30)]), snapshot.state.kinds)
    sent: store_bulk.Sent = set()
    assert b"".join(read_bulk([reader.read(1 << 20)])) == b"".join(
        [expand(SEGMENTS[0], snapshot.state.kinds, sent), *SEGMENTS[1:]]
    )


def test_a_large_segment_is_sent_as_it_is_read(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_bulk, "LARGEST", min(map(len, SEGMENTS)))
    source = snapshot.read_ranges([(0, 30)])
    reader, decoder = BulkReader(source, snapshot.state.kinds), BulkDecoder()
    came = b""
    while chunk := reader.read(300):
        came += b"".join(decoder.feed(chunk))
        assert source.size - source.left - len(came) < 2 * 300
    sent: store_bulk.Sent = set()
    assert came == b"".join([expand(each, snapshot.state.kinds, sent) for each in SEGMENTS])


class Kept(SegmentReader):
    """Segments that lie in no pack."""

    def __init__(self, content: bytes) -> None:
        super().__init__((), 1)
        self._content = content
        self.left = len(content)

    def read(self, size: int) -> bytes:
        read, self._content = self._content[:size], self._content[size:]
        self.left = len(self._content)
        return read


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\xff" * 5, SEGMENTS[0] + SEGMENTS[1][:-1]])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_is_damaged_is_sent_as_it_lies(content: bytes, size: int) -> None:
    reader = BulkReader(Kept(content), KINDS)
    chunks = []
    while chunk := reader.read(size):
        chunks.append(chunk)
    assert b"".join(read_bulk(chunks)).endswith(content[-20:])


def test_a_record_that_came_before_comes_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    first = whole(record(b"a", (STORED, BASE), len(BASE)))
    again = whole(record(b"a", ON_BASE, len(HUNKED), b"z"), record(b"b", (STORED, b"b"), 1))
    sent: store_bulk.Sent = set()
    assert expand(first, KINDS, sent) == first
    assert expand(again, KINDS, sent) == whole(record(b"a", (STORED, b""), 0), record(b"b", (STORED, b"b"), 1))
    monkeypatch.setattr(store_bulk, "REMEMBERED", 0)
    forgetful: store_bulk.Sent = set()
    assert [expand(each, KINDS, forgetful) for each in (first, again)] == [first, again]
