"""Compiles regular expressions with possessive groups, which never give back what they matched.

Python before 3.11.5 matches a possessive group wrongly if a part of it can backtrack: `(?:a{0,2}b)*+` misses matches
(CPython's issue 106052). An atomic group around a greedy one means the same, and is right in every release. So patterns
are written with possessive quantifiers, and compiled here.
"""

from __future__ import annotations

import re
from typing import Final

_GROUP: Final = rb"([*+?]|\{[0-9,]+\})\+"
_SINGLE: Final = rb"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]"
"""Matches an escaped byte, or a class of bytes."""


def atomic(pattern: bytes) -> bytes:
    """Return the pattern with `(?>(?:...)*)` in place of `(?:...)*+`; quantifiers of single characters stay."""
    group, single = re.compile(_GROUP), re.compile(_SINGLE, re.DOTALL)
    out = bytearray()
    starts: list[int] = []
    at = 0
    while at < len(pattern):
        if found := single.match(pattern, at):
            out += found[0]
            at = found.end()
            continue
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"(":
            starts.append(len(out))
        out += byte
        if byte == b")":
            start = starts.pop()
            if found := group.match(pattern, at):
                out[start:] = b"(?>%b%b)" % (bytes(out[start:]), found[1])
                at = found.end()
    return bytes(out)


def compile_pattern(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """Compile a pattern as `re.compile` does, but correctly in every release of Python."""
    return re.compile(atomic(pattern), flags)
