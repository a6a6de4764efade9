"""Mercurial's own deltas: hunks of where a piece of the base begins and ends, a length, and what takes its place."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from smartserver.records.hunks import Hunk
from smartserver.vcs.hg.compat import line_delta
from smartserver.vcs.hg.format import differing_lines

_HUNK: Final = struct.Struct(">lll")

FEW: Final = 512
"""Bytes between the first and the last line that differ, up to which it is not looked for equal ones among them."""


def delta(text: bytes, base: bytes | None) -> bytes:
    """The delta that makes a text of another by whole lines; None: of none."""
    return packed([(0, 0, text)] if base is None else hunks(text, base))


def packed(differing: Iterable[Hunk]) -> bytes:
    """Hunks in Mercurial's form."""
    return b"".join([_HUNK.pack(start, end, len(added)) + added for start, end, added in differing])


def hunks(text: bytes, base: bytes) -> list[Hunk]:
    """The hunks that make a text of another, by whole lines."""
    # What Mercurial's own function takes is in proportion to the whole texts.
    start, end, old_end = differing_lines(text, base)
    piece = text[start:end]
    if end - start <= FEW or old_end - start <= FEW:
        return [(start, old_end, piece)] if piece or old_end > start else []
    return unpacked(line_delta(piece, base[start:old_end]), start)


def unpacked(found: bytes, begin: int = 0) -> list[Hunk]:
    """The hunks that Mercurial's form says. `begin`: where in the base what it is about begins."""
    made: list[Hunk] = []
    at = 0
    while at < len(found):
        first, last, length = _HUNK.unpack_from(found, at)
        at += _HUNK.size
        made.append((first + begin, last + begin, found[at : at + length]))
        at += length
    return made
