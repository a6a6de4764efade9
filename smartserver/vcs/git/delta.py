"""Deltas as git's packs hold them: copies from a base and insertions. Pure; made for speed, not for least size.

Wherever bytes are compared or searched, slices are handed to the interpreter's C code; nothing loops over bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from smartserver.records.alike import common_end, common_start
from smartserver.records.varint import encode

_NEAR_COPY = struct.Struct("<BHH").pack
_FAR_COPY = struct.Struct("<BIH").pack
_MAX_COPY = 0xFFFF
"""Bytes one copy instruction can name with a two-byte length."""

_SMALL_GAP = 40
"""Differing bytes under which looking for matches costs more than it gains."""

_MIN_LINE = 8
"""Shorter lines are found everywhere and mean nothing."""

_MIN_MATCH = 16

_LOOK_UPS = 64
"""The number of times that the base may be searched through, over all look-ups together: reordered big files end there.
"""

_MAX_BACK = 256
"""Bytes before a line that is found in both that are compared, too."""


def _copy(offset: int, n: int) -> bytes:
    """Instructions that copy `n` bytes of the base.

    Fixed widths: the zero bytes git would leave out cost less than Python that leaves them out.
    """
    if n <= 0:
        return b""
    if n > _MAX_COPY:
        steps = range(0, n, _MAX_COPY)
        return b"".join([_FAR_COPY(0xBF, offset + at, min(_MAX_COPY, n - at)) for at in steps])
    if offset <= 0xFFFF:
        return _NEAR_COPY(0xB3, offset, n)
    return _FAR_COPY(0xBF, offset, n)


def _insert(text: bytes) -> bytes:
    n = len(text)
    if n < 128:
        return bytes((n,)) + text if n else b""
    return b"".join([bytes((min(127, n - at),)) + text[at : at + 127] for at in range(0, n, 127)])


def tree_entries(width: int) -> Callable[[bytes], list[bytes]]:
    """Splits a tree into its entries; `width`: bytes of a key. What is not an entry is left out of the list."""
    pattern: re.Pattern[bytes] = re.compile(rb"[0-7]+ [^\0]+\0.{%d}" % width, re.DOTALL)
    return pattern.findall


def tree_delta(base: bytes, text: bytes, split: Callable[[bytes], list[bytes]]) -> bytes | None:
    """A delta of whole entries from one tree to another; None when one of them is not made of entries alone."""
    where: dict[bytes, int] = {}
    at = 0
    for entry in split(base):
        where[entry] = at
        at += len(entry)
    if at != len(base):
        return None
    out = [encode(len(base)), encode(len(text))]
    start = stop = -1
    fresh: list[bytes] = []
    seen = 0
    for entry in split(text):
        seen += len(entry)
        found = where.get(entry)
        if found is not None and found == stop:
            stop += len(entry)
            continue
        if stop >= 0:
            out.append(_copy(start, stop - start))
            start = stop = -1
        if found is None:
            fresh.append(entry)
            continue
        if fresh:
            out.append(_insert(b"".join(fresh)))
            fresh = []
        start, stop = found, found + len(entry)
    if stop >= 0:
        out.append(_copy(start, stop - start))
    out.append(_insert(b"".join(fresh)))
    return b"".join(out) if seen == len(text) else None


def delta(base: bytes, text: bytes, split: Callable[[bytes], list[bytes]] | None = None) -> bytes:
    """A delta from `base` to `text`; `split` cuts trees into entries (`tree_entries`).

    What both share at their ends is copied. In between whole lines of the base are looked up, and each one found grows
    both ways as far as it matches.
    """
    most = min(len(base), len(text))
    head = common_start(base, text)
    tail = common_end(base, text, most - head)
    end, base_end = len(text) - tail, len(base) - tail
    if end - head <= _SMALL_GAP or base_end - head <= _SMALL_GAP:
        ends = _copy(0, head), _insert(text[head:end]), _copy(base_end, tail)
        return b"".join((encode(len(base)), encode(len(text)), *ends))
    if split is not None:
        by_entry = tree_delta(base, text, split)
        if by_entry is not None:
            return by_entry
    out = [encode(len(base)), encode(len(text)), _copy(0, head)]
    done = _match_lines(base, text, head, end, base_end, out)
    if done < end:
        out.append(_insert(text[done:end]))
        done = end
    rest = len(text) - done
    out.append(_copy(len(base) - rest, rest))
    return b"".join(out)


def _match_lines(base: bytes, text: bytes, head: int, end: int, base_end: int, out: list[bytes]) -> int:
    """Append instructions for matches in `text[head:end]`; how far they reach, which may be beyond `end`."""
    first = base.rfind(b"\n", 0, head) + 1
    budget = _LOOK_UPS * len(base)
    lines: set[bytes] | None = None
    done = near = head
    at = text.find(b"\n", head, end)
    while at >= 0 and budget > 0:
        stop = text.find(b"\n", at + 1, end)
        if stop < 0:
            break
        if stop - at > _MIN_LINE:
            if lines is None:
                lines = set(base[first:base_end].split(b"\n"))
            if text[at + 1 : stop] in lines:
                line = text[at : stop + 1]
                found = base.find(line, near)
                budget -= found - near if found >= 0 else len(base) - near
                if found < 0:
                    found = base.find(line, first)
                    budget -= found - first
                if found >= 0:
                    most = min(found, at - done, _MAX_BACK)
                    back = common_end(base[found - most : found], text[at - most : at], most)
                    match = back + common_start(base, text, found, at)
                    if match >= _MIN_MATCH:
                        at -= back
                        out.append(_insert(text[done:at]))
                        out.append(_copy(found - back, match))
                        at = done = at + match
                        if match > 80:  # Likely the same place in both: look on from there.
                            near = found - back + match
                        if at >= end:
                            break
                        stop = text.find(b"\n", at, end)
        at = stop
    return done
