"""Generates deltas in the form of git's packs: copies from a base, and insertions."""

from __future__ import annotations

from typing import Final

from smartserver.records.alike import common_end, common_start
from smartserver.records.varint import encode

_LEAST: Final = 8
"""A line of at most this many bytes is not looked up in the base, because short lines occur in many places."""

_MAX_COPY: Final = 0xFFFF
_MAX_INSERT: Final = 127


def delta(base: bytes, text: bytes) -> bytes:
    """Return a delta from `base` to `text`.

    Their common start and end are copied. In between, each line that is also in the base is extended in both directions
    as far as it matches.
    """
    most = min(len(base), len(text))
    head = common_start(base, text)
    tail = common_end(base, text, most - head)
    end, base_end = len(text) - tail, len(base) - tail
    out = [encode(len(base)), encode(len(text)), _copy(0, head)]
    lines: dict[bytes, int] = {}
    at = head
    for line in base[head:base_end].split(b"\n"):
        lines.setdefault(line, at)
        at += len(line) + 1
    done = at = head
    while at < end:
        stop = text.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        found = lines.get(text[at:stop]) if stop - at > _LEAST else None
        if found is None:
            at = stop + 1
            continue
        near = min(found, at - done)
        back = common_end(base[found - near : found], text[at - near : at], near)
        match = min(common_start(base, text, found, at), end - at)
        out += (_insert(text[done : at - back]), _copy(found - back, match + back))
        done = at = at + match
    out += (_insert(text[done:end]), _copy(base_end, tail))
    return b"".join(out)


def _copy(start: int, length: int) -> bytes:
    """Encode instructions that copy bytes of the base; zero bytes of their numbers are left out."""
    out = bytearray()
    for at in range(0, length, _MAX_COPY):
        numbers = (start + at).to_bytes(4, "little") + min(_MAX_COPY, length - at).to_bytes(2, "little")
        named = [bit for bit, byte in enumerate(numbers) if byte]
        out.append(0x80 | sum(1 << bit for bit in named))
        out += bytes([numbers[bit] for bit in named])
    return bytes(out)


def _insert(text: bytes) -> bytes:
    """Encode instructions that insert `text`."""
    pieces = [text[at : at + _MAX_INSERT] for at in range(0, len(text), _MAX_INSERT)]
    return b"".join([bytes((len(piece),)) + piece for piece in pieces])
