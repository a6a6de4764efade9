"""records.browse, records.bulk: selectors, and bodies and streams cut anywhere, cut off and damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from smartserver.errors import Unsupported
from smartserver.records import browse
from smartserver.records.browse import (
    COMPRESSED,
    MARK,
    PLAIN,
    ContentStream,
    ListedNode,
    LogEntry,
    NodeType,
    checked_items,
    decode_selector,
    encode_item,
    encode_revision,
)
from smartserver.records.bulk import SEGMENT_LEVEL, WINDOW_LOG, BulkDecoder, BulkWriter, read_bulk
from smartserver.records.varint import Malformed

TEXTS = {b"a": b"", b"b/c": b"some text\n", b"b/d": bytes(range(256)) * 10}
ENTRIES = [
    ListedNode(b"", NodeType.FOLDER),
    *(ListedNode(path, NodeType.FILE, len(text)) for path, text in TEXTS.items()),
]
ITEMS = b"".join(encode_item(entry) + TEXTS.get(entry.path, b"") for entry in ENTRIES)
LOG = [
    LogEntry("ab12", "A <a@example.org>", 1_800_000_000, 60, ["cd34"], "first\n", [("A", b"b/c"), ("D", b"\xff")]),
    LogEntry("cd34", "", -1, -90),
]


def raw(entry: LogEntry) -> Raw:
    return Raw(encode_revision(entry))


def plain(items: bytes) -> bytes:
    return PLAIN + b"".join(checked_items([items]))


def compressed(items: bytes) -> bytes:
    bulk = BulkWriter(3)
    return COMPRESSED + b"".join(map(bulk.add, checked_items([items]))) + bulk.finish()


def cut(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def read(chunks: Iterator[bytes]) -> tuple[list[ListedNode], dict[bytes, bytes]]:
    stream = ContentStream(chunks)
    entries: list[ListedNode] = []
    texts: dict[bytes, bytes] = {}
    for entry in stream.entries(texts=True):
        entries.append(entry)
        if entry.type is NodeType.FILE:
            texts[entry.path] = b"".join(stream.text())
    return entries, texts


@pytest.mark.parametrize("body", [plain(ITEMS), compressed(ITEMS)], ids=["plain", "compressed"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 10_000])
def test_a_tree_is_read_however_it_is_cut(body: bytes, size: int) -> None:
    assert read(cut(body, size)) == (ENTRIES, TEXTS)


@given(st.lists(st.integers(1, 60), min_size=1))
def test_a_log_is_read_however_it_is_cut(sizes: Sequence[int]) -> None:
    body = plain(encode_item(list(map(raw, LOG))) + encode_item([raw(LOG[0])]))

    def chunks() -> Iterator[bytes]:
        at = 0
        while at < len(body):
            for size in sizes:
                yield body[at : at + size]
                at += size

    assert list(ContentStream(filter(None, chunks())).log()) == [*LOG, LOG[0]]


@pytest.mark.parametrize("body", [plain(ITEMS), compressed(ITEMS)], ids=["plain", "compressed"])
def test_a_body_that_ends_early_is_never_a_shorter_tree(body: bytes) -> None:
    for length in range(1, len(body)):
        with pytest.raises(Malformed, match="byte"):
            read(cut(body[:length], 50))


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes((body[at] ^ 32,)) + body[at + 1 :]


def test_a_damaged_body_is_refused() -> None:
    body = plain(ITEMS)
    for at in range(len(body)):
        with pytest.raises(Malformed, match="byte"):
            read(cut(flipped(body, at), 500))


def test_a_damaged_body_that_was_compressed_is_refused_or_says_the_same() -> None:
    body = compressed(ITEMS)
    refused = 0
    for at in range(len(body)):
        try:
            assert read(cut(flipped(body, at), 500)) == (ENTRIES, TEXTS)  # As with another size of the window.
        except Malformed:
            refused += 1
    assert refused > len(body) - 10


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (b"\x90", "Expected `array` of length >= 1"),
        (b"\xdd\0\0\x40\1" + b"\x94\xa0\xa0\0\0" * 0x4001, "Expected `array` of length <= 16384"),
    ],
)
def test_an_item_of_no_or_too_many_revisions_is_refused(item: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=f"an item cannot be read: {why}"):
        list(ContentStream([plain(len(item).to_bytes(4, "big") + item)]).log())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x02", "at byte 0: a content body of the form 2"),
        (plain(b"\xff\xff\xff\xff"), f"an item of 4294967295 bytes, expected no more than {browse.MAX_ITEM}"),
        (plain(b"\0\0\0\1\xc1"), "at byte 4: an item cannot be read"),
        (plain(b"\0\0\0\3\x92\1\1"), "an item cannot be read: Expected `bytes`"),
        (plain(encode_item(ListedNode(b"x", NodeType.FILE, 9)) + b"abc"), "it ends 6 bytes before the end of an item"),
    ],
)
def test_what_is_no_content_body_is_said_with_its_offset(body: bytes, why: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(iter([body]))
    assert why in str(caught.value)


@pytest.mark.parametrize("rest", [b"", b"\x91\7", b"\x91\0\0", b"\x96\0\xa0\xc4\0\xc2\xc2\5"])
def test_a_selector_of_another_release_is_refused(rest: bytes) -> None:
    with pytest.raises(Unsupported, match="this selector"):
        decode_selector(MARK + rest)


PIECES = (b"", b"one", b"a line\n" * 5000, random.Random(5).randbytes(70_000), b"a line\n" * 5000)
JOINED = b"".join(PIECES)


def written(*texts: bytes) -> bytes:
    writer = BulkWriter()
    return b"".join([writer.add(text) for text in texts]) + writer.finish()


STREAM = written(*PIECES)


@pytest.mark.parametrize("size", [1, 7, 511, 512, 513, len(STREAM)])
def test_what_was_written_is_read_however_it_comes(size: int) -> None:
    chunks = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert b"".join(read_bulk(chunks)) == JOINED
    assert b"".join(read_bulk([b"", *chunks, b""])) == JOINED


def test_what_is_alike_is_sent_once() -> None:
    noise = random.Random(6).randbytes(1 << 20)
    assert len(written(noise, b"between", noise, noise)) < len(noise) * 1.01
    assert b"".join(read_bulk([written()])) == b""


@pytest.mark.parametrize("left", [0, 1, 4, len(STREAM) // 2, len(STREAM) - 5, len(STREAM) - 4, len(STREAM) - 1])
def test_a_stream_that_ends_early(left: int) -> None:
    with pytest.raises(Malformed, match="ends early"):
        list(read_bulk([STREAM[:left]]))


@pytest.mark.parametrize("chunks", [[STREAM + b"\0"], [STREAM, b"\0"], [STREAM, STREAM]])
def test_nothing_may_follow(chunks: list[bytes]) -> None:
    with pytest.raises(Malformed, match="after the end"):
        list(read_bulk(chunks))


def test_a_window_larger_than_agreed_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=WINDOW_LOG + 2)
    made = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    wrong = made.compress(random.Random(7).randbytes(1 << 20)) + made.flush()
    with pytest.raises(Malformed, match="damaged"):
        list(read_bulk([wrong]))


def test_little_that_becomes_much_comes_in_parts() -> None:
    """A reader holds no more than a few hundred bytes can say, and may stop there."""
    bomb = written(*[bytes(1 << 20)] * 64)
    assert len(bomb) < 16_000
    parts = iter(read_bulk([bomb]))
    sizes = [len(part) for part in parts]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= 24 << 20


def test_what_was_flushed_is_there_before_more_comes() -> None:
    writer, decoder = BulkWriter(SEGMENT_LEVEL), BulkDecoder()
    size = 0
    for text in (b"one", b"two" * 1000):
        chunk = writer.add(text) + writer.flush()
        size += len(chunk)
        assert b"".join(decoder.feed(chunk)) == text
        assert decoder.taken == size
        with pytest.raises(Malformed, match="ends early"):
            decoder.finish()
    assert b"".join(decoder.feed(writer.finish())) == b""
    decoder.finish()


def test_nothing_is_decoded_that_is_not_asked_for() -> None:
    decoder = BulkDecoder()
    parts = decoder.feed(written(*[bytes(1 << 20)] * 64))
    next(parts)
    assert decoder.taken <= 512
