"""Makes the content of a Breezy block (`groupcompress`) from texts, each with the earlier text on which it is based.

A text is stored whole: `f`, its length and itself. Or it is stored as a difference: `d`, the length of the difference,
the length of the text, and instructions. An instruction copies bytes from a place in the block, or inserts the 1 to 127
bytes that follow it. An instruction can copy only bytes that lie in the block unchanged, not the result of a
difference. So the pieces of each text are kept: the places in the block from which it is copied. A text that is changed
in one place has the pieces of its base except at that place. All of it is done with slices of bytes.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from smartserver.records.alike import common_end, common_start
from smartserver.records.model import Key
from smartserver.records.native import twin
from smartserver.vcs.bzr.compat import StoreKey, differences, encode_length

WHOLE_FROM = 3
"""If a delta has more bytes than its text divided by this, the whole text is stored."""

LEVEL = 5
"""The level of zlib: 1 % more bytes than Breezy's 6, for three quarters of the time."""

_FULL = 4 << 20
"""A block with more bytes of content gets no further text. This and the next limit are Breezy's."""

_FULL_OF_FILE = 2 << 20
"""A block with more bytes of content gets no text of another file."""

_COPY = 6
"""Bytes of a copy instruction in the form written here: its command, three bytes of place, two of length."""

_GIVEN = 0x80 | 0x07 | 0x30
_PIECE = 64 << 10
"""The most bytes that one instruction copies; this length is written as 0."""

_WORTH = 96
"""The fewest bytes that are copied from the middle of a text. A shorter match does not pay, because each further piece
is also in all texts that are based on this one."""

_FAR = 1 << 24
"""The end of the places that three bytes can address. Nothing is copied from beyond it."""

_INSERTED = 127
"""The most bytes that one instruction inserts."""

_INDEXED = 1 << 20
"""The most bytes of a text that Breezy indexes to find matches in other texts. Of a longer text, only a part is
indexed."""


class BlockText(NamedTuple):
    """A text to be put into a block."""

    key: Key
    parents: tuple[StoreKey, ...] | None
    sha1: bytes
    """The SHA-1 in hex, or empty if it is not known."""
    text: bytes
    base_key: Key = b""
    """The key of an earlier text that is similar."""
    base: bytes | None = None
    """The text of `base_key`, if it is in memory."""


class TextRange(NamedTuple):
    """The range of a text in a block."""

    key: Key
    parents: tuple[StoreKey, ...] | None
    sha1: bytes
    begin: int
    end: int


Give = Callable[[bytes, list[TextRange]], None]
"""A function that receives a full block and the ranges of its texts."""


def fill(texts: Iterable[BlockText], give: Give) -> None:
    """Put texts into blocks, and pass each full block to `give`."""
    block = Block()
    places: list[TextRange] = []
    file = b""
    for key, parents, sha1, text, base_key, base in texts:
        before, file = file, key.partition(b"\0")[0] if b"\0" in key else b""
        if block.size > _FULL or (file != before and block.size > _FULL_OF_FILE):
            give(block.compressed(), places)
            block, places = Block(), []
        places.append(TextRange(key, parents, sha1, *block.add(key, text, base_key, base)))
    if places:
        give(block.compressed(), places)


class _Pieces(NamedTuple):
    """The pieces of a text: the end of each in the text, and the instructions that copy all of them."""

    ends: list[int]
    copies: bytes


@twin
class Block:
    """A block that grows text by text."""

    def __init__(self) -> None:
        self._content: list[bytes] = []
        self.size = 0
        """Bytes of the block's content."""
        self._pieces: dict[Key, _Pieces] = {}

    def add(self, key: Key, text: bytes, base_key: Key = b"", base: bytes | None = None) -> tuple[int, int]:
        """Add a text, as a difference from an earlier one if that is short. Return its range in the block."""
        if not text:
            return 0, 0
        start = self.size
        known = None if base is None else self._pieces.get(base_key)
        if known is None or base is None or not self._add_changed(key, text, known, base):
            head = b"f" + encode_length(len(text))
            at = start + len(head)
            self._content += (head, text)
            self.size = at + len(text)
            if self.size < _FAR:
                ends: list[int] = []
                self._pieces[key] = _Pieces(ends, _copies(at, len(text), 0, ends))
        return start, self.size

    def _add_changed(self, key: Key, text: bytes, known: _Pieces, base: bytes) -> bool:
        """Add a text as a difference. Return False, and add nothing, if the difference is too long."""
        ahead = common_start(text, base)
        behind = common_end(text, base, min(len(text), len(base)) - ahead)
        rest = len(base) - behind
        middle = text[ahead : len(text) - behind]
        ends: list[int] = []
        out: list[bytes] = []
        inserted: list[tuple[int, int, int]] = []
        """The insertions: the index of each in `out`, the place of its bytes in the difference, and their number."""
        length = _take(known, 0, ahead, ends, out, 0)
        if len(middle) >= _WORTH and rest - ahead >= _WORTH and differences is not None:
            made = differences(base[ahead:rest], _INDEXED).make_delta(middle, len(text) // WHOLE_FROM)
            if made is None:
                return False
            done = 0
            for begin, size, place in _found(made):
                if place > done:
                    length = _insert(middle[done:place], ahead + done, ends, out, inserted, length)
                length += _take(known, ahead + begin, ahead + begin + size, ends, out, ahead + place)
                done = place + size
            length = _insert(middle[done:], ahead + done, ends, out, inserted, length)
        else:
            length = _insert(middle, ahead, ends, out, inserted, length)
        length += _take(known, rest, len(base), ends, out, len(text) - behind)
        said = encode_length(len(text))
        length += len(said)
        if length * WHOLE_FROM > len(text):
            return False
        head = b"d" + encode_length(length) + said
        begin = self.size + len(head)
        self._content.append(b"".join((head, *out)))
        self.size = begin + length - len(said)
        if self.size < _FAR:
            for index, place, size in inserted:
                out[index] = _copy(begin + place, size)
            self._pieces[key] = _Pieces(ends, b"".join(out))
        return True

    def compressed(self) -> bytes:
        """Return the block in the form in which a pack stores it."""
        packer = zlib.compressobj(LEVEL)
        packed = b"".join([*map(packer.compress, self._content), packer.flush()])
        return b"gcb1z\n%d\n%d\n%b" % (len(packed), self.size, packed)


def _copy(at: int, length: int) -> bytes:
    return ((length & 0xFFFF) << 32 | at << 8 | _GIVEN).to_bytes(_COPY, "little")


def _copies(at: int, length: int, place: int, ends: list[int]) -> bytes:
    """Return instructions that copy bytes from `at` in the block. `place`: the place of the copy in the text."""
    out = b""
    while length > 0:
        size = min(length, _PIECE)
        out += _copy(at, size)
        at, place, length = at + size, place + size, length - size
        ends.append(place)
    return out


def _take(known: _Pieces, begin: int, end: int, ends: list[int], out: list[bytes], place: int) -> int:
    """Add instructions that copy the bytes `begin` to `end` of an earlier text to `place` in the new text. Return their
    length in bytes."""
    if begin >= end:
        return 0
    first, last = bisect_right(known.ends, begin), bisect_left(known.ends, end)
    shift = place - begin
    if first == last:
        # All of it in one piece.
        skipped = begin - (known.ends[first - 1] if first else 0)
        at = int.from_bytes(known.copies[first * _COPY + 1 : first * _COPY + 4], "little") + skipped
        copies = _copy(at, end - begin)
    else:
        copies = known.copies[first * _COPY : (last + 1) * _COPY]
        ends += [end_of_piece + shift for end_of_piece in known.ends[first:last]] if shift else known.ends[first:last]
        skipped = begin - (known.ends[first - 1] if first else 0)
        if skipped:
            at = int.from_bytes(copies[1:4], "little") + skipped
            copies = _copy(at, known.ends[first] - begin) + copies[_COPY:]
        if end < known.ends[last]:
            at = int.from_bytes(copies[1 - _COPY : 4 - _COPY], "little")
            copies = copies[:-_COPY] + _copy(at, end - known.ends[last - 1])
    ends.append(end + shift)
    out.append(copies)
    return len(copies)


def _found(made: bytes) -> list[tuple[int, int, int]]:
    """Return the copies in Breezy's difference of two texts, except small ones: source, length and target."""
    found = []
    at = place = 0
    end = len(made)
    while made[at] & 0x80:  # The length of the text.
        at += 1
    at += 1
    while at < end:
        command = made[at]
        at += 1
        if command < 0x80:
            at += command
            place += command
            continue
        begin = size = 0
        if command & 0x01:
            begin = made[at]
            at += 1
        if command & 0x02:
            begin |= made[at] << 8
            at += 1
        if command & 0x04:
            begin |= made[at] << 16
            at += 1
        if command & 0x08:
            begin |= made[at] << 24
            at += 1
        if command & 0x10:
            size = made[at]
            at += 1
        if command & 0x20:
            size |= made[at] << 8
            at += 1
        if command & 0x40:
            size |= made[at] << 16
            at += 1
        size = size or _PIECE
        if size >= _WORTH:
            found.append((begin, size, place))
        place += size
    return found


def _insert(
    text: bytes, place: int, ends: list[int], out: list[bytes], inserted: list[tuple[int, int, int]], length: int
) -> int:
    """Add instructions that insert `text` at `place` in the new text. Return the length of all instructions, which was
    `length` before."""
    for at in range(0, len(text), _INSERTED):
        part = text[at : at + _INSERTED]
        inserted.append((len(out), length + 1, len(part)))
        out.append(bytes((len(part),)) + part)
        ends.append(place + at + len(part))
        length += 1 + len(part)
    return length
