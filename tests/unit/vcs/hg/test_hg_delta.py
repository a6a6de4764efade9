from __future__ import annotations

import random
import struct

from smartserver.vcs.hg.delta import FEW, delta


def patched(base: bytes, difference: bytes) -> bytes:
    """The text, as Mercurial's documentation says it is made."""
    parts, at, done = [], 0, 0
    while at < len(difference):
        start, end, length = struct.unpack_from(">lll", difference, at)
        assert done <= start <= end
        parts += [base[done:start], difference[at + 12 : at + 12 + length]]
        at, done = at + 12 + length, end
    return b"".join([*parts, base[done:]])


def test_of_nothing() -> None:
    assert delta(b"text", None) == struct.pack(">lll", 0, 0, 4) + b"text"
    assert delta(b"", b"") == delta(b"same\n", b"same\n") == b""


def test_a_line_in_the_middle() -> None:
    base = b"".join(b"line %d\n" % n for n in range(1000))
    text = base.replace(b"line 500\n", b"another\n")
    assert delta(text, base) == struct.pack(">lll", base.index(b"line 500"), base.index(b"line 501"), 8) + b"another\n"


def test_any() -> None:
    chance = random.Random(3)
    for _ in range(300):
        base = [b"line %d" % chance.randrange(50) for _ in range(chance.randrange(400))]
        text = list(base)
        for _ in range(chance.randrange(6)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(4)] = [b"new %d" % chance.randrange(9)] * chance.randrange(4)
        old = b"\n".join(base) + chance.choice((b"", b"\n"))
        new = b"\n".join(text) + chance.choice((b"", b"\n"))
        difference = delta(new, old)
        assert patched(old, difference) == new
        assert len(difference) <= len(new) + FEW
