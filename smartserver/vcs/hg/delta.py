"""Mercurial's own deltas: hunks of where a piece of the base begins and ends, a length, and what takes its place."""

from __future__ import annotations

import struct
from typing import Final

from smartserver.vcs.hg.compat import line_delta
from smartserver.vcs.hg.format import differing_lines

_HUNK: Final = struct.Struct(">lll")

FEW: Final = 512
"""Bytes between the first and the last line that differ, up to which it is not looked for equal ones among them."""


def delta(text: bytes, base: bytes | None) -> bytes:
    """How a text differs from another, by whole lines; None: from none."""
    if base is None:
        return _HUNK.pack(0, 0, len(text)) + text
    # What Mercurial's own function takes is in proportion to the whole texts.
    start, end, old_end = differing_lines(text, base)
    piece = text[start:end]
    if end - start <= FEW or old_end - start <= FEW:
        return _HUNK.pack(start, old_end, len(piece)) + piece if piece or old_end > start else b""
    found = bytearray(line_delta(piece, base[start:old_end]))
    at = 0
    while at < len(found):
        first, last, length = _HUNK.unpack_from(found, at)
        _HUNK.pack_into(found, at, first + start, last + start, length)
        at += _HUNK.size + length
    return bytes(found)
