"""store.index_build.Numbered: byte strings by number and back, and how little they and what rests on them take."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from smartserver.errors import LimitExceeded
from smartserver.records.model import BaseTag, Entry, Record, Segment
from smartserver.store import index_build
from smartserver.store.index import Row
from smartserver.store.index_build import IndexBuilder, Numbered, Numbering
from smartserver.store.known_records import NO_BASE, Frame, RecentRecords, UploadIndex

MANY = 20_000


def test_names_have_their_numbers() -> None:
    """Each time one is added, the lowest is given."""
    chance = random.Random(5)
    names = Numbered()
    listed: list[bytes] = []
    first: dict[bytes, int] = {}
    for _ in range(400):
        name = chance.randbytes(chance.randrange(3))
        assert names.find(name) == first.get(name, -1)
        assert names.add(name) == first.setdefault(name, len(listed))
        listed.append(name)
    assert [names.key(number) for number in range(len(names))] == listed
    assert all(names.find(name) == number for name, number in first.items())
    assert names.joined == b"".join(listed)


def test_more_bytes_than_the_ends_can_say_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MAX_JOINED", 5)
    names = Numbered()
    assert [names.add(b"abc"), names.add(b"de")] == [0, 1]
    with pytest.raises(LimitExceeded) as refused:
        names.add(b"f")
    assert (refused.value.value, refused.value.limit) == (6, 5)
    assert (len(names), bytes(names.joined), names.find(b"f")) == (2, b"abcde", -1)


def keys() -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(20) for _ in range(MANY)]


def taken(fill: Callable[[], object]) -> float:
    """Bytes that what `fill` gives takes, by record."""
    tracemalloc.start()
    try:
        held = fill()
        size, _ = tracemalloc.get_traced_memory()
        del held
    finally:
        tracemalloc.stop()
    return size / MANY


def test_what_is_known_of_a_push_takes_little() -> None:
    """A dict of keys and numbers alone would take some 230 bytes a record."""
    made = keys()
    row = Row(1, 2, 3)

    def push() -> tuple[UploadIndex, IndexBuilder]:
        numbering = Numbering()
        index = UploadIndex(numbering.records, lambda offset, size: b"", lambda kind, key: None)
        builder = IndexBuilder(numbering=numbering)
        for at in range(0, MANY, 10):
            for number in range(at, at + 10):
                place = Frame(1, number, 10, 20, NO_BASE, b"")
                index.add(0, bytes(made[number]), b"\x03", number, place, row)
            entries = tuple(Entry(0, 0, key, b"\x03", BaseTag.NONE, b"", 9, 9, b"") for key in made[at : at + 10])
            numbering.revisions.add(b"%d" % at)
            builder.add_numbered(9 * at, Segment(b"%d" % at, (), entries, 0, 90, (0,) * 10), [row] * 10, [-1] * 10)
        return index, builder

    assert taken(push) < 150


def test_a_recent_record_is_neither_large_nor_replaced() -> None:
    recent = RecentRecords(limit=100)
    for text in (b"x" * 30, b"never two texts"):
        recent.put(Record(0, b"7", b"", text))
    recent.put(Record(0, b"large", b"", b"x" * 51))
    assert (recent.get(0, b"7"), recent.get(0, b"large")) == (Record(0, b"7", b"", b"x" * 30), None)
