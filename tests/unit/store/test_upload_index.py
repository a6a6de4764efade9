from __future__ import annotations

import pytest

from smartserver.records.delta import compress
from smartserver.records.model import Key, Record
from smartserver.store.index import Row
from smartserver.store.index_build import Numbered
from smartserver.store.known_records import NO_BASE, STORED_BASE, Frame, RecentRecords, UploadIndex

TEXT = b"a line of text that comes again and again\n" * 10


class Stream:
    """A pack in memory, and an index of the stream that reads it back."""

    def __init__(self, **stored: bytes) -> None:
        self.pack = bytearray()
        self.reads = 0
        self.stored = {key.encode(): Record(0, key.encode(), b"m", text) for key, text in stored.items()}
        self.stream = UploadIndex(Numbered(), self.read, lambda _kind, key: self.stored.get(key))

    def read(self, offset: int, size: int) -> bytes:
        self.reads += 1
        return bytes(self.pack[offset : offset + size])

    def add(
        self, key: Key, text: bytes, base: int = NO_BASE, based: bytes = b"", stored: Key = b"", ordinal: int = 0
    ) -> int:
        encoding, frame = compress(text, based)
        at = len(self.pack)
        self.pack += frame
        return self.stream.add(
            0, key, b"meta", ordinal, Frame(encoding, at, len(frame), len(text), base, stored), Row(1, 2, 3)
        )


def test_copies_are_found_newest_first() -> None:
    stream = Stream()
    assert stream.stream.first(0, b"k") is None
    assert list(stream.stream.ordinals_newest_first(0, b"k")) == []
    numbers = [stream.add(b"k", TEXT, ordinal=ordinal) for ordinal in (4, 5, 9)]
    stream.add(b"other", TEXT)
    assert numbers == [0, 1, 2]
    assert stream.stream.first(0, b"k") == 0
    assert list(stream.stream.ordinals_newest_first(0, b"k")) == [9, 5, 4]
    assert list(stream.stream.ordinals_newest_first(0, b"other")) == [0]
    assert list(stream.stream.ordinals_newest_first(1, b"k")) == []
    assert len(stream.stream) == 4
    assert stream.stream.row(1) == Row(1, 2, 3)
    assert stream.stream.key(3) == b"other"


def test_a_recent_record_ends_a_chain() -> None:
    stream = Stream()
    first = stream.add(b"a", TEXT)
    stream.add(b"b", TEXT + b"b", first, TEXT)
    stream.stream.recent.put(Record(0, b"a", b"meta", TEXT))
    assert stream.stream.record(0, b"b") == Record(0, b"b", b"meta", TEXT + b"b")
    assert stream.reads == 1


def test_a_stored_base_that_is_gone_is_a_bug() -> None:
    stream = Stream()
    stream.add(b"a", TEXT + b"a", STORED_BASE, TEXT, stored=b"base")
    with pytest.raises(LookupError):
        stream.stream.record(0, b"a")


def test_recent_records_are_bounded() -> None:
    recent = RecentRecords(limit=100)
    for number in range(10):
        recent.put(Record(0, b"%d" % number, b"", b"x" * 30))
    assert [recent.get(0, b"%d" % number) is not None for number in range(10)] == [False] * 7 + [True] * 3
    recent.get(0, b"7")
    recent.put(Record(0, b"new", b"", b"x" * 30))
    assert recent.get(0, b"7") is not None
    assert recent.get(0, b"8") is None
    recent.put(Record(0, b"large", b"", b"x" * 51))
    assert recent.get(0, b"large") is None
    recent.put(Record(0, b"7", b"", b"never two texts"))
    assert recent.get(0, b"7") == Record(0, b"7", b"", b"x" * 30)


def test_recent_records_can_be_dropped() -> None:
    recent = RecentRecords(limit=1000)
    recent.put(Record(0, b"a", b"", TEXT))
    recent.clear()
    assert recent.get(0, b"a") is None
    for key in (b"b", b"c"):  # There is room for as much as before.
        recent.put(Record(0, key, b"", TEXT))
    assert recent.get(0, b"b") is not None
