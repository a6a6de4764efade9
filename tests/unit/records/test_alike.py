from __future__ import annotations

import pytest

from smartserver.records.alike import common_end, common_start


def test_what_two_texts_begin_and_end_with() -> None:
    assert common_start(b"", b"x") == 0
    assert common_start(b"abcd", b"abxd") == 2
    assert common_start(b"abc", b"abcd") == 3
    assert common_end(b"abcd", b"abxcd", 4) == 2
    assert common_end(b"aaaa", b"aaa", 1) == 1


@pytest.mark.parametrize("at", [0, 1, 2499, 4999])
def test_one_byte_in_thousands(at: int) -> None:
    one = bytes(5000)
    other = one[:at] + b"x" + one[at + 1 :]
    assert common_start(one, other) == at
    assert common_end(one, other, 5000) == 4999 - at
