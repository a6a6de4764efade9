"""Git deltas: whatever the two texts are, the delta makes the second of the first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smartserver.vcs.git.delta import delta


def apply(base: bytes, changes: bytes) -> bytes:
    """Apply a delta as git does, written from git's pack format."""
    lengths, at = [], 0
    for _ in range(2):
        n = shift = 0
        while True:
            byte = changes[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lengths.append(n)
    out = bytearray()
    while at < len(changes):
        op = changes[at]
        at += 1
        assert op != 0, "the reserved instruction"
        if op < 128:
            assert at + op <= len(changes)
            out += changes[at : at + op]
            at += op
            continue
        numbers = []
        for bits in (range(4), range(4, 7)):
            n = 0
            for place, bit in enumerate(bits):
                if op & 1 << bit:
                    n |= changes[at] << 8 * place
                    at += 1
            numbers.append(n)
        offset, n = numbers
        n = n or 0x10000
        assert offset + n <= len(base)
        out += base[offset : offset + n]
    assert lengths == [len(base), len(out)]
    return bytes(out)


lines = st.lists(st.sampled_from([b"a long enough line %d\n" % n for n in range(12)] + [b"x\n", b"\n", b"no end"]))
texts = lines.map(b"".join) | st.binary(max_size=600)


@given(texts, st.data())
def test_an_edited_text(base: bytes, data: st.DataObject) -> None:
    text = base
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, len(text)))
        text = text[:at] + data.draw(texts) + text[until:]
    assert apply(base, delta(base, text)) == text


@pytest.mark.parametrize("length", [0, 1, 0xFFFE, 0xFFFF, 0x10000, 0x1FFFE, 0x20001, 300_000])
def test_copies_longer_than_one_instruction(length: int) -> None:
    rng = random.Random(length)
    shared = rng.randbytes(length)
    base = rng.randbytes(70_000) + shared + b"tail"
    text = base[:5] + b"new" * 40 + shared + b"tail"
    assert apply(base, delta(base, text)) == text
    assert len(delta(base, base)) < 60


def test_a_small_edit_costs_little() -> None:
    old = [b"line %d of a file with some words in it\n" % n for n in range(3000)]
    new = list(old)
    for at in range(100, 3000, 300):
        new[at] = b"edited\n"
        new.insert(at + 50, b"inserted\n")
    moved = old[1000:1100]
    changes = delta(b"".join(old), b"".join(new[:2000] + moved + new[2000:]))
    assert apply(b"".join(old), changes) == b"".join(new[:2000] + moved + new[2000:])
    assert len(changes) < 1000


def test_a_large_file_in_another_order_ends_soon() -> None:
    rows = [b"row number %d of a table\n" % n for n in range(60_000)]
    base = b"".join(rows)
    random.Random(5).shuffle(rows)
    text = b"".join(rows)
    assert apply(base, delta(base, text)) == text
