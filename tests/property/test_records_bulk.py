"""records.bulk: any texts, cut anywhere on both sides; nothing that is damaged is taken for whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smartserver.records.bulk import LEVEL, SEGMENT_LEVEL, BulkWriter, read_bulk
from smartserver.records.varint import Malformed

texts = st.lists(st.tuples(st.binary(max_size=300), st.booleans(), st.integers(1, 40)), max_size=8)


def written(given_texts: list[tuple[bytes, bool, int]], level: int) -> tuple[bytes, bytes]:
    """A stream and what it says; some texts are flushed."""
    writer = BulkWriter(level)
    stream, content = b"", b""
    for text, flushed, times in given_texts:
        content += text * times
        stream += writer.add(text * times) + (writer.flush() if flushed else b"")
    return stream + writer.finish(), content


@given(texts, st.sampled_from([LEVEL, SEGMENT_LEVEL]), st.lists(st.integers(1, 700), max_size=20))
def test_what_is_written_is_read_in_any_pieces(
    given_texts: list[tuple[bytes, bool, int]], level: int, sizes: list[int]
) -> None:
    stream, content = written(given_texts, level)
    chunks, at = [], 0
    for size in sizes:
        chunks.append(stream[at : at + size])
        at += size
    assert b"".join(read_bulk([*chunks, stream[at:]])) == content


@given(texts, st.data())
def test_a_damaged_stream_is_never_whole(given_texts: list[tuple[bytes, bool, int]], data: st.DataObject) -> None:
    stream, content = written(given_texts, SEGMENT_LEVEL)
    at = data.draw(st.integers(0, len(stream) - 1))
    wrong = data.draw(
        st.sampled_from([stream[:at], stream[:at] + bytes([stream[at] ^ 0x11]) + stream[at + 1 :], stream + b"x"])
    )
    try:
        assert b"".join(read_bulk([wrong])) == content  # A bit that zstd ignores.
    except Malformed:
        pass
    else:
        assert len(wrong) == len(stream)
