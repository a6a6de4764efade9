"""records.hunks, records.alike: differences of texts, and what two texts have in common."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from smartserver.records import limits
from smartserver.records.alike import common_end, common_start
from smartserver.records.hunks import Hunk, apply_hunks, decode_hunks, encode_hunks, hunk_parts
from smartserver.records.varint import Malformed

BASE = b"one two three four"


@pytest.mark.parametrize(
    ("hunks", "frame", "text"),
    [
        ([], b"", BASE),
        ([(0, 3, b"1")], b"\x00\x03\x011", b"1 two three four"),
        ([(4, 7, b"2"), (14, 18, b"")], b"\x04\x03\x012\x07\x04\x00", b"one 2 three "),
        ([(3, 3, b" and"), (18, 18, b"!")], b"\x03\x00\x04 and\x0f\x00\x01!", b"one and two three four!"),
        ([(0, 18, b"")], b"\x00\x12\x00", b""),
    ],
)
def test_a_frame_makes_the_text_of_its_base(hunks: list[Hunk], frame: bytes, text: bytes) -> None:
    assert encode_hunks(hunks) == frame
    assert decode_hunks(frame) == hunks
    assert apply_hunks(hunks, len(text), BASE) == text


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"\x04", "cut off"),
        (b"\x04\x03\x05abc", "cut off"),
        (b"\x13\x00\x00", "byte 19 of a base of 18"),
        (b"\x04\x0f\x00", "byte 19 of a base of 18"),
        (b"\x00\x01\x00", "17 bytes of text, expected 18"),
        (b"\x80\x00\x00\x00", "shortest form"),
        (bytes(limits.MAX_HUNKS + 2), "1048578 bytes of hunks"),
    ],
)
def test_what_is_refused(frame: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        apply_hunks(decode_hunks(frame), len(BASE), BASE)


def test_integers_of_any_length() -> None:
    chance = random.Random(4)
    for _ in range(300):
        at, hunks = 0, []
        for _ in range(chance.randrange(5)):
            start = at + chance.choice((0, 1, 127, 128, 16_383, 16_384, 3_000_000))
            at = start + chance.choice((0, 1, 127, 128, 20_000))
            hunks.append((start, at, bytes(chance.choice((0, 1, 127, 128, 20_000)))))
        assert decode_hunks(encode_hunks(hunks)) == hunks


def outcome(make: Callable[[int], bytes], length: int) -> bytes | None:
    """A text of that length, None where it is refused."""
    try:
        return make(length)
    except Malformed:
        return None


@pytest.mark.parametrize("seed", range(20))
def test_in_parts_they_make_the_same_and_refuse_the_same(seed: int) -> None:
    chance = random.Random(seed)
    base = chance.randbytes(chance.randrange(60))
    ends = sorted(chance.randrange(len(base) + 3) for _ in range(2 * chance.randrange(4)))
    hunks = [
        (start, end, chance.randbytes(chance.randrange(3))) for start, end in zip(ends[::2], ends[1::2], strict=True)
    ]
    size = chance.choice([1, 5, 100])
    for length in range(70):
        cut = [base[at : at + size] for at in range(0, len(base), size)]
        whole = outcome(lambda length: apply_hunks(hunks, length, base), length)
        parts = outcome(lambda length: b"".join(hunk_parts(hunks, length, cut)), length)  # noqa: B023
        assert whole == parts, seed


def test_every_place_of_a_difference_and_every_length() -> None:
    for size in (1, 2, 255, 256, 257, 511, 600):
        text = bytes(range(1, 200)) * 4
        for at in range(size):
            one, other = text[:size], text[:at] + b"\0" + text[at + 1 : size]
            assert common_start(one, other) == at
            assert common_start(b"ab" + one, b"c" + other, 2, 1) == at
            assert common_start(one, other[:at]) == at
            assert common_end(one, other, size) == size - 1 - at
            assert common_end(b"ab" + one, b"c" + other, size) == size - 1 - at
            assert common_end(one, one, at) == at
