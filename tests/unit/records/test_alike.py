from __future__ import annotations

import pytest

from smartserver.records.alike import common_end, common_start


def test_what_two_texts_begin_and_end_with() -> None:
    assert common_start(b"", b"x") == 0
    assert common_start(b"abcd", b"abxd") == 2
    assert common_start(b"abc", b"abcd") == 3
    assert common_end(b"abcd", b"abxcd", 4) == 2
    assert common_end(b"aaaa", b"aaa", 1) == 1


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


@pytest.mark.parametrize("at", [0, 1, 2499, 4999])
def test_one_byte_in_thousands(at: int) -> None:
    one = bytes(5000)
    other = one[:at] + b"x" + one[at + 1 :]
    assert common_start(one, other) == at
    assert common_end(one, other, 5000) == 4999 - at
