"""store.bulk: segments as they lie as one stream, of which every piece that came is worth its segments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from builders import MAIN, History, push
from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport
from needs import needs
from twins import both

from smartserver.records.bulk import BulkDecoder
from smartserver.records.delta import compress, hunks_in, pack_hunks
from smartserver.records.hunks import encode_hunks
from smartserver.records.model import BaseTag, Entry, Kind
from smartserver.records.native import PARTS
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS, encode_segment
from smartserver.store.bulk import BulkReader
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


MIXED = whole(
    record(b"a", ZSTD_BASE, len(BASE)),
    record(b"b", HUNKED_FRAME, len(HUNKED), b"a"),
    record(b"c", ON_BASE, len(HUNKED), b"a"),
    record(b"revision", (STORED, b"own"), 3),
)

BOTH = both("smartserver.store.bulk", "SegmentExpander")


@BOTH
def test_what_needs_no_base_is_expanded(part: Any) -> None:
    before = whole(
        record(b"a", ZSTD_BASE, len(BASE)),
        record(b"b", HUNKED_FRAME, len(HUNKED), b"a"),
        record(b"c", ON_BASE, len(HUNKED), b"a"),
    )
    assert HUNKED_FRAME[0] == ZSTD_HUNKS
    assert part(KINDS).feed(before, True) == whole(
        record(b"a", (STORED, BASE), len(BASE)),
        record(b"b", (HUNKS, hunks_in(*HUNKED_FRAME)), len(HUNKED), b"a"),
        record(b"c", ON_BASE, len(HUNKED), b"a"),
    )


@BOTH
def test_a_large_or_damaged_segment_stays_as_it_lies(part: Any) -> None:
    damaged = whole(record(b"a", (ZSTD, ZSTD_BASE[1][:-1]), len(BASE)))
    assert part(KINDS).feed(damaged, True) == damaged
    sound = whole(record(b"a", ZSTD_BASE, len(BASE)), record(b"b", HUNKED_FRAME, len(HUNKED), b"a"))
    for room in (len(sound) - 1, len(BASE) + 10, len(BASE) - 1):
        assert len(part(KINDS, largest=room).feed(sound, True)) <= max(len(sound), room)


@BOTH
def test_what_is_expanded_at_once_has_a_limit(part: Any) -> None:
    first, second = (whole(record(key, ZSTD_BASE, len(BASE))) for key in (b"a", b"b"))
    limited = part(KINDS, at_once=1)
    assert limited.feed(first + second, False) == part(KINDS).feed(first, True) + second
    assert limited.feed(first, True) == whole(record(b"a", (STORED, b""), 0))


@BOTH
@pytest.mark.parametrize("size", [1, 7, 300])
def test_segments_are_returned_as_soon_as_they_are_whole(part: Any, size: int) -> None:
    """The bytes of a large one are returned as they come."""
    expander, largest = part(KINDS, largest=min(map(len, SEGMENTS))), max(map(len, SEGMENTS))
    content = b"".join(SEGMENTS)
    came = b""
    for at in range(0, len(content), size):
        came += expander.feed(content[at : at + size], at + size >= len(content))
        assert at + size - len(came) <= largest
    whole_one = part(KINDS, largest=min(map(len, SEGMENTS)))
    assert came == b"".join([whole_one.feed(each, True) for each in SEGMENTS])


@BOTH
@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"\xff" * 5, SEGMENTS[0][:-1]])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_what_is_damaged_is_returned_unchanged(part: Any, content: bytes, size: int) -> None:
    expander = part(KINDS)
    came = [expander.feed(content[at : at + size], False) for at in range(0, len(content), size)]
    assert b"".join([*came, expander.feed(b"", True)]) == content


@BOTH
def test_a_record_that_came_before_comes_without_its_text(part: Any) -> None:
    first = whole(record(b"a", (STORED, BASE), len(BASE)))
    again = whole(record(b"a", ON_BASE, len(HUNKED), b"z"), record(b"b", (STORED, b"b"), 1))
    expander = part(KINDS)
    assert expander.feed(first, False) == first
    assert expander.feed(again, True) == whole(record(b"a", (STORED, b""), 0), record(b"b", (STORED, b"b"), 1))
    assert part(KINDS, remembered=0).feed(first + again, True) == first + again


@needs("native parts")
@given(st.data())
def test_both_forms_return_the_same(data: st.DataObject) -> None:
    """Segments in which a byte was changed too, cut anywhere."""
    content = bytearray(b"".join([MIXED, *SEGMENTS[:3], MIXED]))
    for _ in range(data.draw(st.integers(0, 2))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cuts = sorted({0, len(content), *data.draw(st.lists(st.integers(0, len(content)), max_size=3))})
    bounds = {
        "largest": data.draw(st.sampled_from((4 << 20, len(MIXED), len(SEGMENTS[0])))),
        "at_once": data.draw(st.sampled_from((16 << 20, 1, 5_000))),
        "remembered": data.draw(st.sampled_from((200_000, 0, 2))),
    }
    forms = [form(KINDS, **bounds) for form in PARTS["SegmentExpander"]]
    for start, stop in pairwise(cuts):
        piece = bytes(content[start:stop])
        python, natively = (form.feed(piece, stop == len(content)) for form in forms)
        assert natively == python
