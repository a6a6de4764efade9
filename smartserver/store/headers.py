"""One record's header, found by its offset: a segment of 100,000 records is not parsed to read one of them.

Segments were parsed and checked whole when they came (`records.segment`); here their layout is only followed.
"""

from __future__ import annotations

from collections.abc import Sequence

from smartserver.records.check import check_bytes
from smartserver.records.model import BaseTag, Entry, Kind, RevisionId
from smartserver.records.varint import Malformed, decode


def decode_header(buf: bytes, revision: RevisionId, kinds: Sequence[Kind]) -> Entry:
    """The header `buf` begins with, in the segment of `revision`.

    Raises:
        Malformed: it is cut off, or no header.
    """
    if len(buf) < 2:
        raise Malformed(0, "a record's header is cut off")
    kind, encoding = buf[0], buf[1]
    if kind >= len(kinds):
        raise Malformed(0, f"kind {kind}, but the repository has {len(kinds)}")
    key, at = _bytes(buf, 2)
    meta, at = _bytes(buf, at)
    base, at = decode(buf, at)
    base_key = b""
    if base == BaseTag.FULL_KEY:
        base_key, at = _bytes(buf, at)
    length, at = decode(buf, at)
    frame_length, at = decode(buf, at)
    end = at + check_bytes(kinds[kind])
    if end > len(buf):
        raise Malformed(at, "a record's check is cut off")
    return Entry(kind, encoding, key or revision, meta, base, base_key, length, frame_length, buf[at:end])


def _bytes(buf: bytes, at: int) -> tuple[bytes, int]:
    length, begin = decode(buf, at)
    end = begin + length
    if end > len(buf):
        raise Malformed(at, "a record's header is cut off")
    return buf[begin:end], end
