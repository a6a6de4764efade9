from __future__ import annotations

import random

import pytest
import zstandard

from smartserver.records.bulk import SEGMENT_LEVEL, WINDOW_LOG, BulkDecoder, BulkWriter, read_bulk
from smartserver.records.varint import Malformed

TEXTS = (b"", b"one", b"a line\n" * 5000, random.Random(5).randbytes(70_000), b"a line\n" * 5000)
JOINED = b"".join(TEXTS)


def written(*texts: bytes) -> bytes:
    writer = BulkWriter()
    return b"".join([writer.add(text) for text in texts]) + writer.finish()


STREAM = written(*TEXTS)


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
