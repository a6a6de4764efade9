"""Git deltas: whatever the two texts are, the delta makes the second of the first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.vcs.git.delta import delta, tree_delta, tree_entries


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


@given(texts, texts)
def test_any_two_texts(base: bytes, text: bytes) -> None:
    assert apply(base, delta(base, text)) == text


@given(texts, st.data())
def test_an_edited_text(base: bytes, data: st.DataObject) -> None:
    text = base
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, len(text)))
        text = text[:at] + data.draw(texts) + text[until:]
    assert apply(base, delta(base, text)) == text


entries = st.tuples(
    st.sampled_from([b"40000", b"100644", b"160000"]),
    st.sampled_from([b"a", b"b", b"c.d", b"\xff", b"e f"]),
    st.integers(0, 5),
)


def tree_of(rows: list[tuple[bytes, bytes, int]], width: int) -> bytes:
    return b"".join([mode + b" " + name + b"\0" + bytes((n,)) * width for mode, name, n in rows])


@given(st.lists(entries), st.lists(entries), st.sampled_from([20, 32]))
def test_any_two_trees(old: list[tuple[bytes, bytes, int]], new: list[tuple[bytes, bytes, int]], width: int) -> None:
    base, text = tree_of(old, width), tree_of(new, width)
    changes = tree_delta(base, text, tree_entries(width))
    assert changes is not None
    assert apply(base, changes) == text
    assert apply(base, delta(base, text, tree_entries(width))) == text


@given(st.lists(entries), st.binary(min_size=1, max_size=60), st.lists(entries), st.booleans())
@settings(max_examples=50)
def test_trees_with_something_else_in_them(
    front: list[tuple[bytes, bytes, int]], odd: bytes, back: list[tuple[bytes, bytes, int]], in_base: bool
) -> None:
    plain, broken = tree_of(front + back, 20), tree_of(front, 20) + odd + tree_of(back, 20)
    base, text = (broken, plain) if in_base else (plain, broken)
    changes = tree_delta(base, text, tree_entries(20))
    assert changes is None or apply(base, changes) == text
    assert apply(base, delta(base, text, tree_entries(20))) == text


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
