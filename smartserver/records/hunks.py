"""Hunks: the differences of a text from its base.

    hunks = hunk*
    hunk = kept removed added bytes     integers: bytes of the base to keep, and to remove; bytes to add; then these

The rest of the base after the last hunk is kept. Hunks can be decompressed without the base, unlike a zstd frame with
the base as its prefix. So a bulk stream can compress the hunks of many records together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smartserver.records import limits
from smartserver.records.alike import common_end, common_start
from smartserver.records.varint import Malformed, decode, encode

Buffer = bytes | memoryview

Hunk = tuple[int, int, bytes]
"""The start and end of a range of the base, and the bytes that replace it."""


def encode_hunks(hunks: Iterable[Hunk]) -> bytes:
    """Encode hunks, which must be in order and must not overlap."""
    out: list[bytes] = []
    at = 0
    for start, end, added in hunks:
        out += (encode(start - at), encode(end - start), encode(len(added)), added)
        at = end
    return b"".join(out)


def single_hunk(text: bytes, base: bytes, most: int) -> bytes | None:
    """Encode the single hunk that makes a text from its base. Return None if the hunk adds more than `most` bytes, or
    its encoding is no shorter than the text."""
    head = common_start(text, base)
    tail = common_end(text, base, min(len(text), len(base)) - head)
    added = text[head : len(text) - tail]
    if len(added) > most:
        return None
    hunk = encode_hunks([(head, len(base) - tail, added)])
    return hunk if len(hunk) < len(text) else None


def decode_hunks(said: bytes) -> list[Hunk]:
    """Decode hunks. Raise Malformed if they are invalid or too long."""
    size = len(said)
    if size > limits.MAX_HUNKS:
        raise Malformed(0, f"{size} bytes of hunks, expected no more than {limits.MAX_HUNKS}")
    found: list[Hunk] = []
    at = end = 0
    try:
        while at < size:
            # A call of `decode` for each integer would take half of the time.
            kept = said[at]
            at += 1
            if kept >= 0x80:
                if 0 < (more := said[at]) < 0x80:
                    kept += (more << 7) - 0x80
                    at += 1
                else:
                    kept, at = decode(said, at - 1)
            removed = said[at]
            at += 1
            if removed >= 0x80:
                removed, at = decode(said, at - 1)
            length = said[at]
            at += 1
            if length >= 0x80:
                length, at = decode(said, at - 1)
            start = end + kept
            end = start + removed
            found.append((start, end, said[at : at + length]))
            at += length
    except IndexError:
        at = size + 1
    if at > size:
        raise Malformed(size, "a hunk is cut off")
    return found


def apply_hunks(hunks: Sequence[Hunk], length: int, base: bytes) -> bytes:
    """Build the text of `length` bytes from hunks and a base.

    Raises:
        Malformed: the text has another length, or a hunk reaches beyond the base.
    """
    out: list[bytes] = []
    at = 0
    for start, end, added in hunks:
        out += (base[at:start], added)
        at = end
    if at > len(base):
        raise Malformed(0, f"hunks reach to byte {at} of a base of {len(base)}")
    out.append(base[at:])
    text = b"".join(out)
    if len(text) != length:
        raise Malformed(0, f"hunks make {len(text)} bytes of text, expected {length}")
    return text


def hunk_parts(hunks: Sequence[Hunk], length: int, base: Iterable[Buffer]) -> Iterator[Buffer]:
    """Apply hunks as `apply_hunks` does, but read the base and yield the text in parts, with one part of the base in
    memory at a time."""
    parts = iter(base)
    part = memoryview(b"")
    passed = 0
    """The number of bytes of the base before `part`."""

    def before(stop: int) -> Iterator[Buffer]:
        nonlocal part, passed
        while passed < stop:
            if not part:
                found = next(parts, None)
                if found is None:
                    raise Malformed(0, f"hunks reach to byte {stop} of a base of {passed}")
                part = memoryview(found)
            piece, part = part[: stop - passed], part[stop - passed :]
            passed += len(piece)
            yield piece

    def text() -> Iterator[Buffer]:
        for start, end, added in hunks:
            yield from before(start)
            for _removed in before(end):
                pass
            yield added
        yield part
        yield from parts

    made = 0
    for piece in text():
        made += len(piece)
        if made > length:
            break
        if piece:
            yield piece
    if made != length:
        raise Malformed(0, f"hunks make {made} bytes of text or more, expected {length}")
