"""Makes Mercurial's own deltas. A hunk has the start and end of a piece of the base, a length, and new bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from smartserver.records.hunks import Hunk
from smartserver.vcs.hg.compat import line_delta
from smartserver.vcs.hg.format import differing_lines

_HUNK: Final = struct.Struct(">lll")

FEW: Final = 512
"""If all differing lines of one text lie within this many bytes, one hunk replaces them and the equal lines between."""


def delta(text: bytes, base: bytes | None) -> bytes:
    """Return the delta from `base` to `text` by whole lines; None stands for no base."""
    return packed([(0, 0, text)] if base is None else hunks(text, base))


def packed(differing: Iterable[Hunk]) -> bytes:
    """Encode hunks in Mercurial's form."""
    return b"".join([_HUNK.pack(start, end, len(added)) + added for start, end, added in differing])


def hunks(text: bytes, base: bytes) -> list[Hunk]:
    """Return the hunks from `base` to `text` by whole lines."""
    # Mercurial's own function takes time in proportion to the whole texts.
    start, end, old_end = differing_lines(text, base)
    piece = text[start:end]
    if end - start <= FEW or old_end - start <= FEW:
        return [(start, old_end, piece)] if piece or old_end > start else []
    return unpacked(line_delta(piece, base[start:old_end]), start)


def unpacked(found: bytes, begin: int = 0) -> list[Hunk]:
    """Decode hunks in Mercurial's form. `begin` is added to their offsets in the base."""
    made: list[Hunk] = []
    at = 0
    while at < len(found):
        first, last, length = _HUNK.unpack_from(found, at)
        at += _HUNK.size
        made.append((first + begin, last + begin, found[at : at + length]))
        at += length
    return made
