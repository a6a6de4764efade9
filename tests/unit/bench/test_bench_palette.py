"""bench.palette: the same pixels, whatever filters a picture has."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from bench.palette import INDEXED, RGB, SIGNATURE, _chunk, _chunks, _paeth, with_palette


def png(width: int, filters: list[int], rows: list[bytes]) -> bytes:
    """A picture in RGB with a filter for each row."""
    lines, above = b"", bytes(3 * width)
    for kind, row in zip(filters, rows, strict=True):
        lines += bytes([kind])
        for at, value in enumerate(row):
            left, corner = (row[at - 3], above[at - 3]) if at >= 3 else (0, 0)
            guesses = (0, left, above[at], (left + above[at]) // 2, _paeth(left, above[at], corner))
            lines += bytes([(value - guesses[kind]) & 255])
        above = row
    header = struct.pack(">IIBBBBB", width, len(rows), 8, RGB, 0, 0, 0)
    found = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(*each) for each in found)


@pytest.mark.parametrize("colours", [7, 256])
def test_the_pixels_stay(colours: int) -> None:
    chance = random.Random(7)
    palette = [chance.randbytes(3) for _ in range(colours)]
    rows = [b"".join(chance.choice(palette) for _ in range(40)) for _ in range(10)]
    found = dict(_chunks(with_palette(png(40, [0, 1, 2, 3, 4] * 2, rows))))
    assert struct.unpack(">IIBBBBB", found[b"IHDR"]) == (40, 10, 8, INDEXED, 0, 0, 0)
    kept = found[b"PLTE"]
    lines = zlib.decompress(found[b"IDAT"])
    assert [
        b"".join(kept[3 * place : 3 * place + 3] for place in lines[at + 1 : at + 41])
        for at in range(0, len(lines), 41)
    ] == rows


def test_a_rare_colour_becomes_the_nearest() -> None:
    rows = [bytes([at // 8, at % 8 * 2, 0]) * 2 for at in range(256)] + [b"\x05\x05\x00\x05\x04\x00"]
    found = dict(_chunks(with_palette(png(2, [0] * 257, rows))))
    assert len(found[b"PLTE"]) == 3 * 256
    place = zlib.decompress(found[b"IDAT"])[-2]
    assert found[b"PLTE"][3 * place : 3 * place + 3] in (b"\x05\x04\x00", b"\x05\x06\x00")
