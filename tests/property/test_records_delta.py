"""Frames: any text with any base comes back, and changed frames give nothing but `Malformed`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smartserver.records import delta, limits
from smartserver.records.native import PARTS
from smartserver.records.segment import HUNKS, STORED, ZSTD, ZSTD_HUNKS
from smartserver.records.varint import Malformed

PYTHON = PARTS["Zstd"][0]

pieces = st.lists(st.sampled_from([b"alpha\n", b"bravo charlie\n", b"\0" * 300, bytes(range(256))]), max_size=20)
texts = st.one_of(st.binary(max_size=300), pieces.map(b"".join))


@given(texts, texts)
def test_any_text_with_any_base(text: bytes, base: bytes) -> None:
    encoding, frame = delta.compress(text, base)
    used = base if encoding == ZSTD else b""
    assert len(frame) <= len(text)
    assert delta.decompress(encoding, frame, len(text), used) == text
    if encoding == ZSTD:
        prefix = base if len(base) >= limits.MIN_BASE else b""
        other = PYTHON().compress(text, prefix, delta.LEVEL)
        for zstd in (delta.Zstd(), PYTHON()):
            assert zstd.decompress(frame, len(text), prefix) == text
            assert zstd.decompress(other, len(text), prefix) == text
    else:
        assert frame == text


@given(texts.filter(bool), texts, st.data())
def test_changed_frames(text: bytes, base: bytes, data: st.DataObject) -> None:
    encoding, frame = delta.compress(text, base)
    raw = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        if data.draw(st.booleans()) and at < len(raw):
            raw[at] = data.draw(st.integers(0, 255))
        else:
            raw[at : data.draw(st.integers(at, len(raw)))] = data.draw(st.binary(max_size=4))
    length = data.draw(st.sampled_from([len(text), len(text) + 1, 0, 1 << 20, 1 << 40]))
    try:
        got = delta.decompress(encoding, bytes(raw), length, base)
    except Malformed:
        return
    assert len(got) == length


@given(st.binary(max_size=60), st.integers(0, 400))
def test_garbage(raw: bytes, length: int) -> None:
    for encoding in (STORED, ZSTD, 2, HUNKS, ZSTD_HUNKS, 255):
        try:
            got = delta.decompress(encoding, raw, length)
        except Malformed:
            continue
        assert len(got) == length


@given(texts.filter(lambda text: len(text) > 20), texts)
def test_both_ways_refuse_the_same(text: bytes, base: bytes) -> None:
    frame = PYTHON().compress(text, b"", delta.LEVEL)
    raw = bytearray(frame)
    raw[-1] ^= 0xFF
    results: list[bytes | None] = []
    for zstd in (delta.Zstd(), PYTHON()):
        try:
            results.append(zstd.decompress(bytes(raw), len(text), b""))
        except ValueError:
            results.append(None)
    assert results[0] == results[1]
