"""A picture with a palette: a screenshot in less than half the bytes."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RGB, INDEXED = 2, 3
"""Types of colour, with 8 bits for each sample."""
MOST = 256

Colour = bytes


def with_palette(png: bytes) -> bytes:
    """The same picture in its `MOST` most frequent colours; each other one is the nearest of them. `png`: in RGB."""
    width, height, rows = _pixels(png)
    counts = Counter(pixel for row in rows for pixel in row)
    palette = [colour for colour, _ in counts.most_common(MOST)]
    places = {colour: min(range(len(palette)), key=lambda at: _apart(palette[at], colour)) for colour in counts}
    lines = b"".join(b"\0" + bytes(places[pixel] for pixel in row) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, INDEXED, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)


def _apart(one: Colour, other: Colour) -> int:
    return sum((left - right) ** 2 for left, right in zip(one, other, strict=True))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def _pixels(png: bytes) -> tuple[int, int, Sequence[Sequence[Colour]]]:
    found = list(_chunks(png))
    width, height, depth, kind, *_ = struct.unpack(">IIBBBBB", found[0][1])
    assert (depth, kind) == (8, RGB)
    lines = zlib.decompress(b"".join(content for name, content in found if name == b"IDAT"))
    rows: list[Sequence[Colour]] = []
    above = bytes(3 * width)
    for at in range(0, len(lines), 3 * width + 1):
        above = _unfiltered(lines[at], bytearray(lines[at + 1 : at + 1 + 3 * width]), above)
        rows.append([above[place : place + 3] for place in range(0, len(above), 3)])
    return width, height, rows


def _unfiltered(kind: int, line: bytearray, above: bytes) -> bytes:
    """A line as it was before the filter that PNG applied to it."""
    for at in range(len(line)):
        left, corner = (line[at - 3], above[at - 3]) if at >= 3 else (0, 0)
        guessed = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))[kind]
        line[at] = (line[at] + guessed) & 255
    return bytes(line)


def _paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda each: abs(guess - each))
