from __future__ import annotations

from smartserver.records.alike import common_end, common_start


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
