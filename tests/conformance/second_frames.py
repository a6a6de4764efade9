"""The frames of records, for the second decoder: read from the specification alone."""

from __future__ import annotations

import zstandard
from second_bulk import MAGIC


def integer(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def patch(frame: bytes, base: bytes, *, compressed: bool) -> bytes:
    if compressed:
        size, at = integer(frame, 0)
        frame = zstandard.ZstdDecompressor().decompress(MAGIC + frame[at:])
        assert len(frame) == size, "hunks have the length that stands before their frame"
    parts, at, done = list[bytes](), 0, 0
    while at < len(frame):
        kept, at = integer(frame, at)
        removed, at = integer(frame, at)
        length, at = integer(frame, at)
        parts += [base[done : done + kept], frame[at : at + length]]
        at, done = at + length, done + kept + removed
    assert at == len(frame), "hunks are whole"
    assert done <= len(base), "hunks are of their base"
    return b"".join([*parts, base[done:]])


def text_of(encoding: int, frame: bytes, base: bytes) -> bytes:
    if encoding == 0:
        return frame
    if encoding in (3, 4):
        return patch(frame, base, compressed=encoding == 4)
    prefix = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if base else None
    return zstandard.ZstdDecompressor(dict_data=prefix, max_window_size=1 << 27).decompress(MAGIC + frame)
